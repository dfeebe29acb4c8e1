"""Tasks of tokens: answers are asked for at some positions of a sequence."""

from sepfx.tasks.tokens.recall import MQAR
from sepfx.tasks.tokens.task import Asked, Sequences, TokenTask, token_objective

__all__ = ["MQAR", "Asked", "Sequences", "TokenTask", "token_objective"]

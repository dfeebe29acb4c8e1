"""Tasks of tokens: answers are asked for at some positions of a sequence."""

from sepfx.tasks.tokens.copying import Copying, SelectiveCopying
from sepfx.tasks.tokens.fuzzy import FuzzyRecall
from sepfx.tasks.tokens.named import TASKS
from sepfx.tasks.tokens.recall import (
  MQAR,
  InContextRecall,
  InductionHeads,
  Memorisation,
)
from sepfx.tasks.tokens.states import Dyck, KHop, WordProblem
from sepfx.tasks.tokens.task import Sequences, TokenTask, token_objective

__all__ = [
  "MQAR",
  "TASKS",
  "Copying",
  "Dyck",
  "FuzzyRecall",
  "InContextRecall",
  "InductionHeads",
  "KHop",
  "Memorisation",
  "SelectiveCopying",
  "Sequences",
  "TokenTask",
  "WordProblem",
  "token_objective",
]

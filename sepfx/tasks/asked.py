"""What a model is given where it is to answer at some positions alone."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Int


class Asked(NamedTuple):
  """Sequences, and where to answer.

  Attributes:
    inputs: tokens [n N], or vectors [n N D].
    asked: positions at which to answer, after the input there.
  """

  inputs: Array
  asked: Int[Array, "n M"]

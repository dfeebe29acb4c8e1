"""The papers' weights, as parameters of `sepfx.models`."""

from sepfx.constructions.boolean import (
  Network,
  Selection,
  piecewise_constant,
  represent,
  selection,
)
from sepfx.constructions.retrieval import (
  Retrieval,
  lemma_11_alpha,
  norm_bounds,
  retrieval_transformer,
)

__all__ = [
  "Network",
  "Retrieval",
  "Selection",
  "lemma_11_alpha",
  "norm_bounds",
  "piecewise_constant",
  "represent",
  "retrieval_transformer",
  "selection",
]

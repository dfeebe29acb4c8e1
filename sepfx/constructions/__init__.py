"""The papers' weights, as parameters of `sepfx.models`."""

from sepfx.constructions.boolean import (
  Network,
  Selection,
  piecewise_constant,
  represent,
  selection,
)
from sepfx.constructions.chain import ChainConstruction, cyclic_chain
from sepfx.constructions.fourier import FlatConstruction, flat_transformer
from sepfx.constructions.retrieval import (
  Retrieval,
  lemma_11_alpha,
  norm_bounds,
  retrieval_transformer,
)

__all__ = [
  "ChainConstruction",
  "FlatConstruction",
  "Network",
  "Retrieval",
  "Selection",
  "cyclic_chain",
  "flat_transformer",
  "lemma_11_alpha",
  "norm_bounds",
  "piecewise_constant",
  "represent",
  "retrieval_transformer",
  "selection",
]

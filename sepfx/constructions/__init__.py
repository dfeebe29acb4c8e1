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
from sepfx.constructions.interpolation import (
  Interpolation,
  Separation,
  fit_line,
  interpolator,
  memorising_rnn,
  separation,
)
from sepfx.constructions.recurrent import RecurrentRetrieval, recurrent_retrieval
from sepfx.constructions.retrieval import (
  Retrieval,
  lemma_11_alpha,
  norm_bounds,
  retrieval_transformer,
)
from sepfx.constructions.slots import SlotMemory, slot_memory

__all__ = [
  "ChainConstruction",
  "FlatConstruction",
  "Interpolation",
  "Network",
  "RecurrentRetrieval",
  "Retrieval",
  "Selection",
  "Separation",
  "SlotMemory",
  "cyclic_chain",
  "fit_line",
  "flat_transformer",
  "interpolator",
  "lemma_11_alpha",
  "memorising_rnn",
  "norm_bounds",
  "piecewise_constant",
  "recurrent_retrieval",
  "represent",
  "retrieval_transformer",
  "selection",
  "separation",
  "slot_memory",
]

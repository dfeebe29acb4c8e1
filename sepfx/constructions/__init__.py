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
  memory_norms,
  separation,
)
from sepfx.constructions.recurrent import RecurrentRetrieval, recurrent_retrieval
from sepfx.constructions.retrieval import (
  Retrieval,
  RetrievingHeads,
  lemma_11_alpha,
  norm_bounds,
  retrieval_transformer,
  retrieving_heads,
)
from sepfx.constructions.slots import SlotMemory, label_radius, slot_memory

__all__ = [
  "ChainConstruction",
  "FlatConstruction",
  "Interpolation",
  "Network",
  "RecurrentRetrieval",
  "Retrieval",
  "RetrievingHeads",
  "Selection",
  "Separation",
  "SlotMemory",
  "cyclic_chain",
  "fit_line",
  "flat_transformer",
  "interpolator",
  "label_radius",
  "lemma_11_alpha",
  "memorising_rnn",
  "memory_norms",
  "norm_bounds",
  "piecewise_constant",
  "recurrent_retrieval",
  "represent",
  "retrieval_transformer",
  "retrieving_heads",
  "selection",
  "separation",
  "slot_memory",
]

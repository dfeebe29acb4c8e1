"""Former names of the papers' weights, which stand beside the questions now."""

from sepfx.moved import former

_PLACES = {
  **dict.fromkeys(
    ("Network", "Selection", "piecewise_constant", "represent", "selection"),
    "boolean.construction",
  ),
  **dict.fromkeys(
    ("ChainConstruction", "cyclic_chain"), "fourier.chain_of_thought.construction"
  ),
  **dict.fromkeys(
    ("FlatConstruction", "flat_transformer"), "fourier.flatness.construction"
  ),
  **dict.fromkeys(
    (
      "Interpolation",
      "Separation",
      "fit_line",
      "interpolator",
      "memorising_rnn",
      "memory_norms",
      "separation",
    ),
    "qstr.constructions.interpolation",
  ),
  **dict.fromkeys(
    ("RecurrentRetrieval", "recurrent_retrieval"), "qstr.constructions.recurrent"
  ),
  **dict.fromkeys(
    (
      "Retrieval",
      "RetrievingHeads",
      "lemma_11_alpha",
      "norm_bounds",
      "retrieval_transformer",
      "retrieving_heads",
    ),
    "qstr.constructions.retrieval",
  ),
  **dict.fromkeys(
    ("SlotMemory", "label_radius", "slot_memory"), "qstr.constructions.slots"
  ),
}
_MODULES = {
  "boolean": "boolean.construction",
  "chain": "fourier.chain_of_thought.construction",
  "classes": "qstr.constructions.classes",
  "fourier": "fourier.flatness.construction",
  "interpolation": "qstr.constructions.interpolation",
  "recurrent": "qstr.constructions.recurrent",
  "retrieval": "qstr.constructions.retrieval",
  "slots": "qstr.constructions.slots",
}

__getattr__ = former(__name__, _PLACES, _MODULES)

"""Former names of the papers' weights, which stand beside the questions now."""

from sepfx.moved import former

__path__: list[str] = []  # it has modules, which have moved, too
_PLACES = {
  **dict.fromkeys(
    ("Network", "Selection", "piecewise_constant", "represent", "selection"), "boolean"
  ),
  **dict.fromkeys(("ChainConstruction", "cyclic_chain"), "chain"),
  **dict.fromkeys(("FlatConstruction", "flat_transformer"), "fourier"),
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
    "interpolation",
  ),
  **dict.fromkeys(("RecurrentRetrieval", "recurrent_retrieval"), "recurrent"),
  **dict.fromkeys(
    (
      "Retrieval",
      "RetrievingHeads",
      "lemma_11_alpha",
      "norm_bounds",
      "retrieval_transformer",
      "retrieving_heads",
    ),
    "retrieval",
  ),
  **dict.fromkeys(("SlotMemory", "label_radius", "slot_memory"), "slots"),
}

__getattr__ = former(__name__, _PLACES)

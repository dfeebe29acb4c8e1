"""Former names of the papers' bounds, which stand beside the questions now."""

from sepfx.moved import former

__path__: list[str] = []  # it has modules, which have moved, too
_PLACES = {
  **dict.fromkeys(
    (
      "HeadNorms",
      "LayerNorms",
      "Norms",
      "deep_capacity",
      "generalisation_bound",
      "head_norms",
      "heads_capacity",
      "linear_log_covering",
      "matrix_capacity",
      "norms",
    ),
    "capacity",
  ),
  **dict.fromkeys(("Floor", "exhaustive_success", "stored_floor"), "exhaustive"),
  **dict.fromkeys(("coefficients", "spectrum", "walsh_hadamard"), "fourier"),
  **dict.fromkeys(
    ("degree_verdict", "estimate_degree", "estimate_width", "width_verdict"),
    "property_testing",
  ),
  **dict.fromkeys(("empirical_rademacher", "finite_class", "linear_class"), "rademacher"),
}

__getattr__ = former(__name__, _PLACES)

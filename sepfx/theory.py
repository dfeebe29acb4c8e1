"""Former names of the papers' bounds, which stand beside the questions now."""

from sepfx.moved import former

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
  **dict.fromkeys(("Floor", "exhaustive_success", "stored_floor"), "boolean.exhaustive"),
  **dict.fromkeys(("coefficients", "spectrum", "walsh_hadamard"), "fourier.spectra"),
  **dict.fromkeys(
    ("degree_verdict", "estimate_degree", "estimate_width", "width_verdict"),
    "fourier.property_testing.estimators",
  ),
  **dict.fromkeys(
    ("empirical_rademacher", "finite_class", "linear_class"), "boolean.rademacher"
  ),
}
_MODULES = {
  "capacity": "capacity",
  "covering": "qstr.bounds.covering",
  "exhaustive": "boolean.exhaustive",
  "flat_derivatives": "fourier.flatness.flat_derivatives",
  "fourier": "fourier.spectra",
  "guarantees": "qstr.bounds.guarantees",
  "lower_bounds": "qstr.bounds.lower_bounds",
  "pac_bayes": "fourier.flatness.pac_bayes",
  "perturbation": "fourier.flatness.perturbation",
  "perturbed_steps": "fourier.flatness.perturbed_steps",
  "property_testing": "fourier.property_testing.estimators",
  "rademacher": "boolean.rademacher",
  "representation": "qstr.bounds.representation",
  "sharpness": "sepfx.probes.hessian",
}

__getattr__ = former(__name__, _PLACES, _MODULES)

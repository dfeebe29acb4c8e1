"""What theory says of the tasks and models: floors and bounds, as functions."""

from sepfx.theory.capacity import (
  HeadNorms,
  LayerNorms,
  Norms,
  deep_capacity,
  generalisation_bound,
  head_norms,
  heads_capacity,
  linear_log_covering,
  matrix_capacity,
  norms,
)
from sepfx.theory.exhaustive import Floor, exhaustive_success, stored_floor
from sepfx.theory.fourier import coefficients, spectrum, walsh_hadamard
from sepfx.theory.property_testing import (
  degree_verdict,
  estimate_degree,
  estimate_width,
  width_verdict,
)
from sepfx.theory.rademacher import empirical_rademacher, finite_class, linear_class

__all__ = [
  "Floor",
  "HeadNorms",
  "LayerNorms",
  "Norms",
  "coefficients",
  "deep_capacity",
  "degree_verdict",
  "empirical_rademacher",
  "estimate_degree",
  "estimate_width",
  "exhaustive_success",
  "finite_class",
  "generalisation_bound",
  "head_norms",
  "heads_capacity",
  "linear_class",
  "linear_log_covering",
  "matrix_capacity",
  "norms",
  "spectrum",
  "stored_floor",
  "walsh_hadamard",
  "width_verdict",
]

"""What records mean: censored means, exponents, critical sample sizes, best of several.

Reads records only.
"""

from sepfx.statistics import error_names, success
from sepfx.statistics.best_summary import summarise_best
from sepfx.statistics.intervals import restricted_mean
from sepfx.statistics.levels import Level
from sepfx.statistics.passages import Checks, Mean
from sepfx.statistics.probed import summarise_probes
from sepfx.statistics.scaling import Exponent, fit_exponent
from sepfx.statistics.series import series
from sepfx.statistics.success_summary import summarise_success
from sepfx.statistics.summary import summarise

__all__ = [
  "Checks",
  "Exponent",
  "Level",
  "Mean",
  "error_names",
  "fit_exponent",
  "restricted_mean",
  "series",
  "success",
  "summarise",
  "summarise_best",
  "summarise_probes",
  "summarise_success",
]

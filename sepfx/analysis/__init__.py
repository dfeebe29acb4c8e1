"""What it means: reads records only; censored means, scaling fits, figures."""

from sepfx.analysis import figures
from sepfx.analysis.attention import block_statistics
from sepfx.analysis.scaling import Exponent, fit_exponent
from sepfx.analysis.statistics import Mean, restricted_mean
from sepfx.analysis.summary import summarise

__all__ = [
  "Exponent",
  "Mean",
  "block_statistics",
  "figures",
  "fit_exponent",
  "restricted_mean",
  "summarise",
]

"""What it means: reads records only; censored means, scaling fits, figures."""

from sepfx.analysis import (
  best_figures,
  chain_figures,
  figures,
  flatness_figures,
  gap_figures,
  measured,
  success,
  success_figures,
  testing_figures,
)
from sepfx.analysis.attention import block_statistics
from sepfx.analysis.best_summary import summarise_best
from sepfx.analysis.chains import summarise_chains
from sepfx.analysis.gaps import summarise_gaps
from sepfx.analysis.levels import Level
from sepfx.analysis.passages import Checks, Mean
from sepfx.analysis.probed import summarise_probes
from sepfx.analysis.scaling import Exponent, fit_exponent
from sepfx.analysis.series import series
from sepfx.analysis.statistics import restricted_mean
from sepfx.analysis.success_summary import summarise_success
from sepfx.analysis.summary import summarise
from sepfx.analysis.testers import summarise_tests
from sepfx.analysis.transitions import transitions

__all__ = [
  "Checks",
  "Exponent",
  "Level",
  "Mean",
  "best_figures",
  "block_statistics",
  "chain_figures",
  "figures",
  "fit_exponent",
  "flatness_figures",
  "gap_figures",
  "measured",
  "restricted_mean",
  "series",
  "success",
  "success_figures",
  "summarise",
  "summarise_best",
  "summarise_chains",
  "summarise_gaps",
  "summarise_probes",
  "summarise_success",
  "summarise_tests",
  "testing_figures",
  "transitions",
]

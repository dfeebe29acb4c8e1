"""How one trial learns: protocols with pure `init` and `advance`, objectives, risks."""

from sepfx.training.erm import ERM, ERMTrial, Verdict
from sepfx.training.online import Online, OnlineTrial, Passage
from sepfx.training.optimizers import (
  AdamW,
  FromOptax,
  adam_with_kernel_decay,
  evaluation_weights,
  optimizer,
  penalised,
  projected,
)
from sepfx.training.risks import (
  averaged_risk,
  pointwise_risk,
  population_risk,
  prompt_errors,
)
from sepfx.training.settings import with_setting
from sepfx.training.states import Outcome, Report, Seeds, State, World, select
from sepfx.training.trials import Probe, Probes, Trial, probe_key

__all__ = [
  "ERM",
  "AdamW",
  "ERMTrial",
  "FromOptax",
  "Online",
  "OnlineTrial",
  "Outcome",
  "Passage",
  "Probe",
  "Probes",
  "Report",
  "Seeds",
  "State",
  "Trial",
  "Verdict",
  "World",
  "adam_with_kernel_decay",
  "averaged_risk",
  "evaluation_weights",
  "optimizer",
  "penalised",
  "pointwise_risk",
  "population_risk",
  "probe_key",
  "projected",
  "prompt_errors",
  "select",
  "with_setting",
]

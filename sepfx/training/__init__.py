"""How one trial learns: protocols with pure `init` and `advance`, objectives, risks."""

from sepfx.training.epochs import EpochState, EpochTraining
from sepfx.training.erm import ERM, ERMTrial, Verdict
from sepfx.training.levels import Level
from sepfx.training.objectives import OBJECTIVES, Objective
from sepfx.training.online import Online, OnlineTrial, Passage
from sepfx.training.optimizers import adam_with_kernel_decay, projected
from sepfx.training.risks import (
  averaged_risk,
  pointwise_risk,
  population_risk,
  prompt_errors,
)
from sepfx.training.trials import Outcome, Report, Seeds, State, Trial, World, select

__all__ = [
  "ERM",
  "OBJECTIVES",
  "ERMTrial",
  "EpochState",
  "EpochTraining",
  "Level",
  "Objective",
  "Online",
  "OnlineTrial",
  "Outcome",
  "Passage",
  "Report",
  "Seeds",
  "State",
  "Trial",
  "Verdict",
  "World",
  "adam_with_kernel_decay",
  "averaged_risk",
  "pointwise_risk",
  "population_risk",
  "projected",
  "prompt_errors",
  "select",
]

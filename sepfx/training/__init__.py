"""How one trial learns: pure `init` and `advance`, risks, outcomes."""

from sepfx.training.epochs import EpochState, EpochTraining
from sepfx.training.levels import Level
from sepfx.training.online import Online, OnlineTrial, Seeds, State, World
from sepfx.training.outcomes import Curve, Outcome, Passage, curve, passages
from sepfx.training.risks import (
  averaged_risk,
  pointwise_risk,
  population_risk,
  prompt_errors,
)

__all__ = [
  "Curve",
  "EpochState",
  "EpochTraining",
  "Level",
  "Online",
  "OnlineTrial",
  "Outcome",
  "Passage",
  "Seeds",
  "State",
  "World",
  "averaged_risk",
  "curve",
  "passages",
  "pointwise_risk",
  "population_risk",
  "prompt_errors",
]

"""What is to be reached: a test loss, or a fraction of a reference's."""

from __future__ import annotations

from typing import NamedTuple

# What losses are held against that no token was found for.
REFERENCE = "uniform attention"


class Level(NamedTuple):
  """A threshold that may depend on the length.

  Uniform attention (1 - 1/N for the linear link) is what a model reaches without
  finding the token that a position names. It rises with N, so a fixed threshold asks
  for more of the task the longer the prompts are, and a fraction of it for as much.

  Attributes:
    value: the test loss tau, or the fraction.
    of_uniform: whether it is a fraction of the reference's risk.
  """

  value: float
  of_uniform: bool = False

  def threshold(self, reference_risk: float) -> float:
    """Returns tau.

    Args:
      reference_risk: the reference's, on the test prompts; needed for a fraction.
    """
    return self.value * reference_risk if self.of_uniform else self.value

  @property
  def named(self) -> dict[str, float | None]:
    """How entries of a summary say it: the one is the value, the other None."""
    fraction = self.value if self.of_uniform else None
    return {"threshold": None if self.of_uniform else self.value, "fraction": fraction}

  def __str__(self) -> str:
    return f"{self.value:g}" + (f" of {REFERENCE}'s" if self.of_uniform else "")

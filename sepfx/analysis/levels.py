"""What is to be reached: a test loss, or a fraction of what uniform attention has."""

from __future__ import annotations

from typing import NamedTuple


class Level(NamedTuple):
  """A threshold that may depend on the length.

  Uniform attention (1 - 1/N for the linear link) is what a model reaches without
  finding the token that a position names. It rises with N, so a fixed threshold asks
  for more of the task the longer the prompts are, and a fraction of it for as much.

  Attributes:
    value: the test loss tau, or the fraction.
    of_uniform: whether it is a fraction of uniform attention's risk.
  """

  value: float
  of_uniform: bool = False

  def threshold(self, uniform_risk: float) -> float:
    """Returns tau.

    Args:
      uniform_risk: uniform attention's, on the test prompts; needed for a fraction.
    """
    return self.value * uniform_risk if self.of_uniform else self.value

  @property
  def named(self) -> dict[str, float | None]:
    """How entries of a summary say it: the one is the value, the other None."""
    fraction = self.value if self.of_uniform else None
    return {"threshold": None if self.of_uniform else self.value, "fraction": fraction}

  def __str__(self) -> str:
    return f"{self.value:g}" + (" of uniform attention's" if self.of_uniform else "")

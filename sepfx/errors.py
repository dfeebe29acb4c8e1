"""The one error that bad input raises, before anything compiles."""

from __future__ import annotations


class InvalidSetting(ValueError):
  """A setting that cannot be used.

  Attributes:
    setting: name of the argument (and of the command-line flag).
    got: the offending value.
    takes: what would have been accepted, as a phrase.
  """

  def __init__(self, setting: str, got: object, takes: str):
    self.setting, self.got, self.takes = setting, got, takes
    super().__init__(f"{setting}: got {got!r}, takes {takes}")


def require(condition: bool, setting: str, got: object, takes: str) -> None:
  """Raises `InvalidSetting(setting, got, takes)` unless `condition` holds."""
  if not condition:
    raise InvalidSetting(setting, got, takes)

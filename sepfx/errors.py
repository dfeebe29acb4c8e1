"""What the library raises: for bad input, before anything compiles, and when stopped."""

from __future__ import annotations

# Characters of an offending value that a message shows.
_SHOWN = 500


class InvalidSetting(ValueError):
  """A setting that cannot be used.

  Attributes:
    setting: name of the argument (and of the command-line flag).
    got: the offending value.
    takes: what would have been accepted, as a phrase.
  """

  def __init__(self, setting: str, got: object, takes: str):
    self.setting, self.got, self.takes = setting, got, takes
    super().__init__(f"{setting}: {self.words}")

  @property
  def words(self) -> str:
    """What it got, cut where that is very long, and what it takes."""
    shown = repr(self.got)
    if len(shown) > _SHOWN:
      shown = f"{shown[:_SHOWN]}... ({len(shown)} characters)"
    return f"got {shown}, takes {self.takes}"


class UnknownSetting(InvalidSetting):
  """Nothing has a setting of this name."""


def require(condition: bool, setting: str, got: object, takes: str) -> None:
  """Raises `InvalidSetting(setting, got, takes)` unless `condition` holds."""
  if not condition:
    raise InvalidSetting(setting, got, takes)


def require_positive(owner: object, *names: str) -> None:
  """Raises `InvalidSetting` unless these fields are None or at least 1."""
  for name in names:
    value = getattr(owner, name)
    require(value is None or value >= 1, name, value, "an integer >= 1")


class Interrupted(Exception):
  """The run was asked to stop, and did; what it had is kept."""


class OutOfMemory(Exception):
  """Something does not fit the memory of a device or of the host; it says what."""

"""What the library raises: for bad input, before anything compiles, and when stopped."""

from __future__ import annotations

import pathlib
import sysconfig
import traceback

# Characters of an offending value that a message shows: of a text, and of anything else,
# which has one line.
_SHOWN, _SHOWN_OF_OBJECTS = 500, 100
# Characters of what another library raised.
_SAID = 200
# Where code lies that is no user's: the interpreter's, that of libraries, and ours.
_HERE = pathlib.Path(__file__).resolve().parents[1]
_NOT_OWN = (
  pathlib.Path(sysconfig.get_path("stdlib")).resolve(),
  _HERE / "sepfx",
  _HERE / "experiments",
)
_OF_LIBRARIES = {"site-packages", "dist-packages"}


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
    """What it got, cut where that is long, and what it takes."""
    shown, most = repr(self.got), _SHOWN
    if not isinstance(self.got, str):
      shown, most = " ".join(shown.split()), _SHOWN_OF_OBJECTS
    if len(shown) > most:
      shown = f"{shown[:most]}... ({len(shown)} characters)"
    return f"got {shown}, takes {self.takes}"


class UnknownSetting(InvalidSetting):
  """Nothing has a setting of this name."""


class WrongInputs(InvalidSetting):
  """Inputs whose axes are not those that a model takes.

  Attributes:
    axes: that it takes, as in "n N D".
  """

  def __init__(self, got: object, axes: str, takes: str):
    self.axes = axes
    super().__init__("inputs", got, takes)


def one_line(text: object, most: int = _SAID) -> str:
  """A text without line breaks, cut where it is longer."""
  line = " ".join(str(text).split())
  return line if len(line) <= most else f"{line[: most - 3]}..."


def said(error: Exception) -> str:
  """What somebody's own code raised, in one line, with the place in their own file."""
  return f"it raised: {raised(error)}"


def raised(error: Exception) -> str:
  """An error in one line, with the last place that is in somebody's own file."""
  words = one_line(error)
  if not isinstance(error, InvalidSetting):  # which says itself what it is of
    words = f"{type(error).__name__}: {words}"
  for frame in reversed(traceback.extract_tb(error.__traceback__)):
    path = pathlib.Path(frame.filename)
    if not path.is_absolute() or _OF_LIBRARIES & {*path.parts}:  # as "<string>" is
      continue
    if not any(path.resolve().is_relative_to(own) for own in _NOT_OWN):
      return f"{words} in {path.name}, line {frame.lineno}"
  return words


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

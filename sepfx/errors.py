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
# Where code lies that is no user's: the interpreter's and its libraries', and ours.
_HERE = pathlib.Path(__file__).parents[1]
_LIBRARIES = tuple(
  f"{path}/"
  for path in (
    *(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib")),
    *(_HERE / package for package in ("sepfx", "experiments")),
  )
)


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
  words = f"it raised: {type(error).__name__}: {one_line(error)}"
  frames = traceback.extract_tb(error.__traceback__)
  own = [f for f in frames if not f.filename.startswith(("<", *_LIBRARIES))]
  if not own:
    return words
  return f"{words}, {pathlib.Path(own[-1].filename).name}, line {own[-1].lineno}"


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

"""What of a user's own a directory may name: what this call names."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sepfx.ensembles import Cell
from sepfx.errors import require
from sepfx.specifications import base, imported, importing_only
from sepfx.studies.settings import Chosen
from sepfx.trusted import known_classes, public_names


def cells_of(
  there: Chosen,
  cells: Callable[[Chosen], list[Cell]],
  trusted: Sequence[str] = (),
  here: Chosen | None = None,
) -> list[Cell]:
  """Returns the grid of settings that stand in a directory.

  Nothing that they name is imported but this package's own classes, what `trusted` names,
  and what this call's own settings do.

  Args:
    there: the settings.
    cells: settings -> grid.
    trusted: names of classes or factories, from --classes.
    here: those of this call; None if it has none.

  Raises:
    InvalidSetting: for something else that they name, or settings that cannot be used.
  """
  once = len(set(trusted)) == len(trusted)
  require(once, "classes", list(trusted), "each name once")
  takes = "names of classes or factories, such as package.module:Mixer"
  for name in trusted:
    require(callable(imported(name, "classes", takes)), "classes", name, takes)
  own = [text for values in (here.values.values() if here else ()) for text in values]
  named = {base(text) for text in own if isinstance(text, str)}
  with importing_only({*public_names(), *known_classes(), *trusted, *named}):
    return cells(there)

"""Which classes may be made of what stands in a directory: it may be anybody's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from sepfx import models, tasks, training
from sepfx.descriptions import qualified
from sepfx.errors import require

_TABLES = (models, tasks, training)


def public_names() -> dict[str, type]:
  """This package's classes of modules, tasks and protocols, by the names of its tables.

  Such as "sepfx.models:GRU".
  """
  return {
    f"{table.__name__}:{name}": own
    for table in _TABLES
    for name in table.__all__
    if isinstance(own := getattr(table, name), type) and dataclasses.is_dataclass(own)
  }


def known_classes(classes: Iterable[type] = ()) -> dict[str, type]:
  """This package's public classes and a caller's, by their qualified names.

  Args:
    classes: those that the caller trusts.

  Raises:
    InvalidSetting: for what is no class, or two of one name.
  """
  takes = "classes, as in classes=[Mixer]"
  proper = isinstance(classes, Iterable) and not isinstance(classes, str)
  require(proper, "classes", classes, takes)
  known = {qualified(own): own for own in public_names().values()}
  for own in classes:
    require(isinstance(own, type), "classes", own, takes)
    name = qualified(own)
    takes_one = f"one class of each name; {name} is the name of two"
    require(known.setdefault(name, own) is own, "classes", own, takes_one)
  return known

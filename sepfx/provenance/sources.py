"""Which code of a user's own a value runs, as digests.

Code is a function or a class, and what it finds: the functions that it calls, what these
close over, the values of names. Digests do not depend on the version of Python, on where
files are, on comments, docstrings, annotations and the layout of lines.

Code of installed packages is not in it, nor this project's: their versions say what they
are. Packages in directories of their own (editable installs) are a user's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from sepfx.provenance.walk import Walk

# Of the way in which digests are made: those of different schemes cannot be compared.
SCHEME = 1


class Code(NamedTuple):
  """What values run beside this project.

  Attributes:
    wholes: of each value that runs a user's own code, by the name that it was given, the
      digests of all that it runs.
    parts: digests of each function, class and value by its name, for messages; several
      where several have one name.
    packages: names of the installed packages that classes and functions are from.
  """

  wholes: dict[str, list[str]]
  parts: dict[str, list[str]]
  packages: list[str]


def code_of(values: Iterable[tuple[str, Any]]) -> Code:
  """Returns all code that values may run, theirs and what that code finds.

  Followed are the classes of objects with their bases, methods, constants and
  properties, what functions close over, and the names that they load from their modules.
  What is found at run time alone (`getattr` by a computed name, a file that is read) is
  not, and neither is what the code changes itself, such as a counter or a cache.

  Args:
    values: with names, which need not differ. The numbers and texts in their fields are
      settings, and not code.
  """
  wholes: dict[str, set[str]] = {}
  parts: dict[str, set[str]] = {}
  packages: set[str] = set()
  for name, value in values:
    walk = Walk(parts, packages)
    whole = walk.of_settings(value)
    if walk.found_own:
      wholes.setdefault(name, set()).add(whole + walk.mark)
  return Code(_sorted(wholes), _sorted(parts), sorted(packages))


def _sorted(digests: Mapping[str, set[str]]) -> dict[str, list[str]]:
  return {name: sorted(own) for name, own in sorted(digests.items())}


class Change(NamedTuple):
  """How the code of two runs differs.

  Attributes:
    changed: names of the parts that differ, or of the wholes where no part does.
    unknown: names of wholes that cannot be compared.
  """

  changed: list[str]
  unknown: list[str]


def changes(there: Code, here: Code) -> Change:
  """How the code of two runs differs, where both ran something of one name.

  Each may have run more than the other of what has one name.
  """
  changed, unknown = _differing(there.wholes, here.wholes)
  parts, _ = _differing(there.parts, here.parts)
  return Change((parts or changed) if changed else [], unknown)


def both(there: Code, here: Code) -> Code:
  """The code of all that ran in either of two runs."""
  wholes, parts = (
    {n: sorted({*a.get(n, ()), *b.get(n, ())}) for n in sorted(a.keys() | b.keys())}
    for a, b in ((there.wholes, here.wholes), (there.parts, here.parts))
  )
  return Code(wholes, parts, sorted({*there.packages, *here.packages}))


def _differing(
  there: Mapping[str, Collection[str]], here: Mapping[str, Collection[str]]
) -> tuple[list[str], list[str]]:
  changed, unknown = [], []
  for name in sorted(there.keys() & here.keys()):
    old, new = _by_mark(there[name]), _by_mark(here[name])
    common = old.keys() & new.keys()
    if any(not (old[k] <= new[k] or new[k] <= old[k]) for k in common):
      changed.append(name)
    elif not common:
      unknown.append(name)
  return changed, unknown


def _by_mark(digests: Collection[str]) -> dict[str, set[str]]:
  found: dict[str, set[str]] = {}
  for digest in digests:
    found.setdefault(digest.partition("@")[2], set()).add(digest)
  return found

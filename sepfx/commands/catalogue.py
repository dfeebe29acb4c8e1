"""The command `sepfx`: names the studies, and starts one of them.

A study is a module that runs as a program. The project's own are in one package; another
package brings some with entry points in the group `sepfx.studies`, each the name of its
command and a module.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.metadata
import importlib.util
import pathlib
import runpy
import sys
from typing import NamedTuple

import sepfx
from sepfx.errors import one_line

GROUP = "sepfx.studies"
_START = 'if __name__ == "__main__":\n'
# The file of a study that has a folder of its own.
_IN_FOLDER = "study"


class Entry(NamedTuple):
  """A study.

  Attributes:
    module: that runs as a program.
    question: what it asks, the first line of the module.
    fault: why it cannot be run, if it cannot.
  """

  module: str
  question: str
  fault: str = ""


def studies(package: str, study: str = "") -> dict[str, Entry]:
  """Returns studies by their commands: those of a package, then other packages'.

  Args:
    package: of the project's own.
    study: the one that is wanted; other packages are not looked into if it is the
      project's own. Empty for all.
  """
  found = of_package(package)
  if study in found:
    return found
  for point in importlib.metadata.entry_points(group=GROUP):
    name = point.name.replace("_", "-")
    if name in found:
      entry = Entry(point.module, "", f"another study is called {name}")
      found[f"{name} ({point.module})"] = entry
    else:
      found[name] = _of_entry_point(point.module)
  return found


def command_of(module: str) -> str:
  """The command of a study's module, such as "sample-complexity"."""
  for point in importlib.metadata.entry_points(group=GROUP):
    if point.module == module:
      return point.name.replace("_", "-")
  return _own_command(module)


def _own_command(module: str) -> str:
  parent, _, name = module.rpartition(".")
  if name == _IN_FOLDER and parent:
    name = parent.rpartition(".")[2]
  return name.replace("_", "-")


def of_package(package: str) -> dict[str, Entry]:
  """Returns the studies of a package by their commands."""
  (place,) = importlib.import_module(package).__path__
  named = {}
  for path in pathlib.Path(place).rglob("[a-z]*.py"):
    text = path.read_text()
    if _START in text:
      parts = path.relative_to(place).with_suffix("").parts
      module = ".".join((package, *parts))
      named[_own_command(module)] = Entry(module, _question(text))
  return dict(sorted(named.items()))


def _of_entry_point(module: str) -> Entry:
  """A study of another package, which may be in any state."""
  try:
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
      return Entry(module, "", f"no module {module}")
    return Entry(module, _question(pathlib.Path(spec.origin).read_text()))
  except (Exception, SystemExit) as error:
    return Entry(module, "", one_line(error))


def _question(text: str) -> str:
  return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def main(package: str) -> None:
  """Runs `sepfx STUDY --FLAG=VALUE ...`; exits with 2 where there is no such study.

  Args:
    package: of the project's own studies.
  """
  study, *arguments = sys.argv[1:] or ["--help"]
  if study == "--version":
    print(sepfx.__version__)
    return
  known = studies(package, study)
  if study in ("--help", "-h", "help"):
    width = max(map(len, known))
    print("usage: sepfx STUDY [--preset=NAME] [--FLAG=VALUE ...]\n")
    for name, entry in known.items():
      fault = f"(cannot be run: {entry.fault})"
      print(f"  {name:{width}}  {fault if entry.fault else entry.question}")
    print("\nThe flags and presets of a study: sepfx STUDY --help")
    return
  if study not in known or known[study].fault:
    near = difflib.get_close_matches(study, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    says = known[study].fault + ". " if study in known else guess
    print(f"error: no study {study!r}: {says}See sepfx --help", file=sys.stderr)
    sys.exit(2)
  sys.argv = [f"sepfx {study}", *arguments]
  runpy.run_module(known[study].module, run_name="__main__", alter_sys=True)

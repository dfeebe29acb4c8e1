"""The command `sepfx`: names the studies, and starts one of them."""

from __future__ import annotations

import ast
import difflib
import pathlib
import runpy
import sys

import sepfx

_START = 'if __name__ == "__main__":\n'


def studies() -> dict[str, str]:
  """What each study asks, by its command: the first line of its module."""
  found = {}
  for path in sorted(pathlib.Path(__file__).parent.glob("[a-z]*.py")):
    text = path.read_text()
    if _START in text:
      question, _, _ = (ast.get_docstring(ast.parse(text)) or "").partition("\n")
      found[path.stem.replace("_", "-")] = question
  return found


def main() -> None:
  """Runs `sepfx STUDY --FLAG=VALUE ...`; exits with 2 where there is no such study."""
  study, *arguments = sys.argv[1:] or ["--help"]
  if study == "--version":
    print(sepfx.__version__)
    return
  known = studies()
  if study in ("--help", "-h", "help"):
    width = max(map(len, known))
    lines = (f"  {name:{width}}  {question}" for name, question in known.items())
    print("usage: sepfx STUDY [--preset=NAME] [--FLAG=VALUE ...]\n", *lines, sep="\n")
    print("\nThe flags and presets of a study: sepfx STUDY --help")
    return
  if study not in known:
    near = difflib.get_close_matches(study, known, n=1)
    guess = f"did you mean {near[0]}? " if near else ""
    print(f"error: no study {study!r}: {guess}See sepfx --help", file=sys.stderr)
    sys.exit(2)
  sys.argv = [f"sepfx {study}", *arguments]
  module = f"{__package__}.{study.replace('-', '_')}"
  runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
  main()

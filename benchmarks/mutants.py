"""How many faults of the core does the default `pytest` find?

    python -m benchmarks.mutants --seed=0

Draws mutants of the core. In each, one part of the syntax tree is another: a
comparison, an arithmetic or a logical operator, a constant, the branches of a choice,
or a function for its counterpart (`min` for `max`). Which are drawn depends on the seed
and on the code around each alone, so a change elsewhere moves no other mutant.
Annotations and texts that are put together are left out: only words depend on them.
Mutants that no test can tell from the original stand in `EQUIVALENT` with the reason,
and the next of the draw take their places.

Each mutant is made in a temporary copy of the sources. The tests that are likeliest to
fail run first. Where they pass, the whole default selection runs. The original has to
pass both. Takes about a minute of CPU time for each mutant that is found, and ten for
one that is not.
"""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import rich.console
from absl import app, flags

flags.DEFINE_integer("seed", 0, "Seed of the draw.")
flags.DEFINE_integer("count", 25, "Mutants to try.", lower_bound=1)
flags.DEFINE_list("only", [], "Names of mutants to try, instead of a draw.")
flags.DEFINE_bool("dry_run", False, "Print what would be tried and how it differs.")
FLAGS = flags.FLAGS

_ROOT = pathlib.Path(__file__).parent.parent
# The core, and the test files that are likeliest to fail.
_CORE = {
  "sepfx/training/online.py": (
    "domains", "training", "screen", "published_protocols", "golden_trials",
  ),
  "sepfx/training/erm.py": (
    "domains", "erm", "published_protocols", "golden_trials", "protocol_options",
  ),
  "sepfx/training/optimizers.py": (
    "domains", "trials_as_data", "erm", "protocol_options", "golden_trials", "learners",
  ),
  "sepfx/training/orders.py": ("orders", "golden_trials"),
  "sepfx/training/interface.py": ("training", "trials_as_data", "golden_trials"),
  "sepfx/training/penalties.py": ("domains", "protocol_options", "golden_trials"),
  "sepfx/training/risks.py": ("training",),
  "sepfx/training/settings.py": ("trials_as_data",),
  "sepfx/training/states.py": ("golden_trials",),
  "sepfx/training/trials.py": (
    "training", "flat_training", "erm", "protocol_options", "golden_trials",
  ),
  "sepfx/ensembles/advance.py": ("ensembles", "golden_trials", "screen"),
  "sepfx/ensembles/lanes.py": ("ensembles", "golden_trials"),
  "sepfx/tasks/qstr.py": ("domains", "tasks", "golden_trials"),
  "sepfx/statistics/passages.py": ("passages", "analysis"),
  "sepfx/statistics/bounded.py": ("passages", "analysis"),
  "sepfx/statistics/scaling.py": ("passages", "analysis"),
}  # fmt: skip
# The whole default selection, but for tests that pack a git repository: the copy is none.
_WHOLE = ("--ignore=tests/test_run_tpu.py",)
_LEFT_OUT = (".*", "runs", "_site", "build", "*.egg-info", "__pycache__")

# Mutants that no test can tell from the original, and why.
EQUIVALENT = {
  "b1c91ff7": "the end itself is on either side of the end",
  "7e80e977": "one bisection more, at a width that is the tolerance to the last digit",
  "22859d48": "one chunk that is all samples, mapped over or not",
  "9dbdb4ba": "other steps to the same maximum",
  "1f7361f5": "other steps to the same maximum",
  "edf8781d": "one cell alone is as likely by itself as together with itself",
  "42749667": "from 0 to 1 both tails give the same number, up to rounding",
  "cf7d74a2": "one step fewer of at most thirty: it has converged long before",
  "9197928f": "another start of the steps to the same maximum",
  "e39fe208": "another first step of the search for the same end; of ones, none",
  "f40163e0": "another first step of the search for the same end",
  "bdeeb71c": "where the diagonal is not far above 1e-12, so is the slope, and no step",
}

_OPERATORS: dict[type, tuple[type, ...]] = {
  ast.Lt: (ast.LtE, ast.GtE),
  ast.LtE: (ast.Lt, ast.Gt),
  ast.Gt: (ast.GtE, ast.LtE),
  ast.GtE: (ast.Gt, ast.Lt),
  ast.Eq: (ast.NotEq,),
  ast.NotEq: (ast.Eq,),
  ast.Is: (ast.IsNot,),
  ast.IsNot: (ast.Is,),
  ast.In: (ast.NotIn,),
  ast.NotIn: (ast.In,),
  ast.Add: (ast.Sub,),
  ast.Sub: (ast.Add,),
  ast.Mult: (ast.Div,),
  ast.Div: (ast.Mult,),
  ast.FloorDiv: (ast.Mult,),
  ast.Mod: (ast.FloorDiv,),
  ast.Pow: (ast.Mult,),
  ast.LShift: (ast.RShift,),
  ast.RShift: (ast.LShift,),
  ast.BitAnd: (ast.BitOr,),
  ast.BitOr: (ast.BitAnd,),
  ast.BitXor: (ast.BitOr,),
  ast.And: (ast.Or,),
  ast.Or: (ast.And,),
}
_COUNTERPARTS = {
  one: other
  for pair in (
    ("min", "max"), ("minimum", "maximum"), ("argmin", "argmax"), ("any", "all"),
    ("ceil", "floor"), ("zeros", "ones"), ("zeros_like", "ones_like"), ("sum", "mean"),
    ("logical_and", "logical_or"),
  )
  for one, other in (pair, pair[::-1])
}  # fmt: skip
# Functions that choose between their second and their third argument.
_CHOICES = ("where", "cond", "select")


@dataclasses.dataclass(frozen=True)
class Mutant:
  """One place of one file, with other text there.

  Attributes:
    path: of the file, in the tree.
    place: the class and function.
    line, column: where the text begins, from 1.
    start, end: of the text, in bytes of the file.
    old, new: the text.
    whole: the expression or statement that it is a part of.
    repeated: mutants like this one in all the above that come before it in its place.
  """

  path: str
  place: str
  line: int
  column: int
  start: int
  end: int
  old: str
  new: str
  whole: str
  repeated: int

  @property
  def name(self) -> str:
    """Of eight digits; the same wherever in the file its code stands."""
    return self.digest("")[:8]

  def digest(self, seed: object) -> str:
    """By which the mutants of a draw are in order."""
    own = (self.path, self.place, self.whole, self.old, self.new, self.repeated)
    return hashlib.sha256("\n".join(map(str, (seed, *own))).encode()).hexdigest()

  def __str__(self) -> str:
    at = f"{self.path}:{self.line}:{self.column} {self.place}".rstrip()
    return f"{self.name} {at}: {self.old} -> {self.new}"


def mutants_of(path: str, source: str) -> list[Mutant]:
  """Returns all mutants of a file, in the order in which they stand."""
  encoded = source.encode()
  starts = [0]
  for text in encoded.splitlines(keepends=True):
    starts.append(starts[-1] + len(text))
  found: list[Mutant] = []
  seen: collections.Counter[tuple] = collections.Counter()
  for place, whole, node, changed in _changes(ast.parse(source), (), None):
    start = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    old, new = ast.unparse(node), ast.unparse(changed)
    own = (place, ast.unparse(whole), old, new)
    found.append(
      Mutant(
        path,
        place,
        node.lineno,
        node.col_offset + 1,
        start,
        end,
        *own[2:],
        own[1],
        seen[own],
      )
    )
    seen[own] += 1
  return found


def _changes(
  node: ast.AST, names: tuple[str, ...], whole: ast.AST | None
) -> Iterator[tuple[str, ast.AST, ast.AST, ast.AST]]:
  """All of a part of the tree: (place, outermost expression, node, its replacement)."""
  if isinstance(node, ast.JoinedStr):
    return
  if isinstance(node, ast.ClassDef | ast.FunctionDef):
    names = (*names, node.name)
  if whole is None and isinstance(node, ast.expr | ast.AugAssign):
    whole = node
  if whole is not None:
    for changed in _changed(node):
      yield ".".join(names), whole, node, changed
  for field, value in ast.iter_fields(node):
    if field in ("annotation", "returns"):
      continue
    for child in value if isinstance(value, list) else [value]:
      if isinstance(child, ast.AST):
        yield from _changes(child, names, whole)


def _changed(node: ast.AST) -> Iterator[ast.AST]:
  """What may stand in a node's place."""

  def with_(**fields) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
      setattr(other, name, value)
    return other

  match node:
    case ast.Compare(ops=operators):
      for k, own in enumerate(operators):
        for other in _OPERATORS[type(own)]:
          yield with_(ops=[*operators[:k], other(), *operators[k + 1 :]])
    case ast.BinOp(op=own) | ast.BoolOp(op=own) | ast.AugAssign(op=own):
      for other in _OPERATORS.get(type(own), ()):
        yield with_(op=other())
    case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert(), operand=operand):
      yield operand
    case ast.IfExp(body=body, orelse=orelse):
      yield with_(body=orelse, orelse=body)
    case ast.Constant(value=bool(value)):
      yield ast.Constant(not value)
    case ast.Constant(value=int(value) | float(value)):
      yield from (ast.Constant(value + 1), ast.Constant(value - 1))
    case ast.Call(func=ast.Attribute(attr=name), args=[first, one, other, *rest]) if (
      name in _CHOICES
    ):
      yield with_(args=[first, other, one, *rest])
    case ast.Call(func=ast.Name(id=name), args=[first, one, other, *rest]) if (
      name in _CHOICES
    ):
      yield with_(args=[first, other, one, *rest])
    case ast.Attribute(attr=name) if name in _COUNTERPARTS:
      yield with_(attr=_COUNTERPARTS[name])
    case ast.Name(id=name) if name in _COUNTERPARTS:
      yield with_(id=_COUNTERPARTS[name])


def _all_mutants() -> list[Mutant]:
  folder = _ROOT / "sepfx" / "training"
  core = {f"sepfx/training/{own.name}" for own in folder.glob("*.py")} | set(_CORE)
  core -= {"sepfx/training/__init__.py"}
  found = [mutants_of(path, (_ROOT / path).read_text()) for path in sorted(core)]
  return [mutant for own in found for mutant in own]


def _drawn(seed: int, count: int) -> tuple[list[Mutant], list[Mutant]]:
  """The mutants of a draw, and the equivalent ones whose places they took."""
  tried: list[Mutant] = []
  equivalent: list[Mutant] = []
  for mutant in sorted(_all_mutants(), key=lambda own: own.digest(seed)):
    if len(tried) == count:
      break
    (equivalent if mutant.name in EQUIVALENT else tried).append(mutant)
  return tried, equivalent


class _Copy:
  """A copy of the tree, of which one file at a time is a mutant."""

  def __init__(self, folder: pathlib.Path):
    self.root = folder / "tree"
    shutil.copytree(_ROOT, self.root, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    self._passed: set[tuple[str, ...]] = set()

  def killer(self, mutant: Mutant) -> str | None:
    """Returns the first test that fails with a mutant, or None if all pass."""
    likely = _CORE.get(mutant.path, ("golden_trials",))
    tests = self.root / "tests"
    files = [own for name in likely for own in sorted(tests.rglob(f"test_{name}.py"))]
    first = ("--numprocesses=0", *(str(own.relative_to(self.root)) for own in files))
    for selection in (first, _WHOLE):
      if selection not in self._passed:
        failed = self._first_failure(selection)
        if failed:
          sys.exit(f"error: without any mutant: {failed}")
        self._passed.add(selection)
      original = self.root / mutant.path
      text = original.read_bytes()
      new = mutant.new if mutant.old == mutant.whole else f"({mutant.new})"
      original.write_bytes(text[: mutant.start] + new.encode() + text[mutant.end :])
      try:
        failed = self._first_failure(selection)
      finally:
        original.write_bytes(text)
      if failed:
        return failed
    return None

  def _first_failure(self, selection: tuple[str, ...]) -> str | None:
    environment = {**os.environ, "PYTHONPATH": str(self.root)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
      [*command, *selection],
      cwd=self.root,
      env=environment,
      capture_output=True,
      text=True,
    )
    if done.returncode == 0:
      return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failed[1] if failed else f"pytest, with code {done.returncode}"


def main(_) -> None:
  console = rich.console.Console(soft_wrap=True, highlight=False)
  tried, equivalent = _drawn(FLAGS.seed, FLAGS.count)
  if FLAGS.only:
    tried = [mutant for mutant in _all_mutants() if mutant.name in FLAGS.only]
    equivalent = []
  for mutant in equivalent:
    console.print(str(mutant), f"equivalent: {EQUIVALENT[mutant.name]}", markup=False)
  if FLAGS.dry_run:
    for mutant in tried:
      console.print(f"{mutant}   in   {mutant.whole}", markup=False)
    return
  survived = 0
  with tempfile.TemporaryDirectory(prefix="sepfx-mutants-") as folder:
    tree = _Copy(pathlib.Path(folder))
    for mutant in tried:
      killer = tree.killer(mutant)
      survived += killer is None
      console.print(
        str(mutant), f"fails {killer}" if killer else "SURVIVED", markup=False
      )
  console.print(f"{len(tried) - survived} of {len(tried)} fail the default pytest")


if __name__ == "__main__":
  app.run(main)

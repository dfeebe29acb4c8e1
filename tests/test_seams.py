"""The engine knows no paper, no task and no model by name; studies stay small."""

import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

import pytest

from sepfx import models, tasks

ROOT = pathlib.Path(__file__).parent.parent
# Names that have moved to the papers.
# What several papers use.
SHARED = {"capacity"}
FORMER = ("constructions.py", "moved.py", "theory.py")
# Words of the papers. What is learned, who learns and what is measured have such names.
FORBIDDEN = re.compile(
  "boolean(?! =)(?<!flag . boolean)|qstr|parity|parities|fourier|walsh|rademacher"
  "|pac_bayes|edelman|covering|lemma|theorem|transformer|uniform",
  re.IGNORECASE,
)
# Names of tasks and models, today's and those that directories have.
REGISTERED = {
  *tasks.__all__,
  *models.__all__,
  *(name for names in models.NAMES.values() for name in names),
  "qstr",
  "simple_qstr",
  "of_uniform",
  "uniform_attention_risk",
  "uniform_fractions",
  "uniform attention",
}
NAMED_FREELY = ("tasks", "models", "probes")
INSTRUMENT = sorted(
  path
  for path in (ROOT / "sepfx").rglob("*.py")
  if path.relative_to(ROOT / "sepfx").parts[0] not in (*NAMED_FREELY, *FORMER)
)
STUDIES = (
  "sample_complexity",
  "boolean/boolean_sample_complexity",
  "boolean/parity",
  "qstr/attention_weights",
)


def code_of(text):
  """A module without its docstrings, comments, registered names and `jax.random`."""
  lines = text.splitlines(keepends=True)
  for node in ast.walk(ast.parse(text)):
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
      for k in range(first.lineno - 1, first.end_lineno):
        lines[k] = "\n"
  tokens = tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
  code = " ".join(t.string for t in tokens if t.type != tokenize.COMMENT)
  names = "|".join(sorted(REGISTERED, key=len, reverse=True))
  return re.sub(rf"jax \. random \. \w+|\b({names})\b", "", code)


def test_the_check_finds_what_it_looks_for():
  assert FORBIDDEN.search(code_of('"""Fine: lemma."""\nx = "a_transformer"  # parity\n'))
  assert not FORBIDDEN.search(
    code_of('"""lemma"""\n# parity\nx = jax.random.uniform(k), "transformer", QSTR\n')
  )


@pytest.mark.parametrize(
  "path", INSTRUMENT, ids=lambda path: str(path.relative_to(ROOT / "sepfx"))
)
def test_the_instrument_serves_no_paper(path):
  found = FORBIDDEN.search(code_of(path.read_text()))
  assert not found, found


def test_studies_say_only_what_is_their_own():
  bodies = {}
  for name in STUDIES:
    text = (ROOT / "experiments" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= (80 if name == "boolean/parity" else 150), name
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.FunctionDef) and len(node.body) > 1:
        body = "\n".join(ast.unparse(line) for line in node.body)
        assert bodies.setdefault(body, name) == name, node.name
        assert body.count("\n") < 40, node.name


def test_models_alone_load_no_engine():
  program = (
    "import sys, sepfx.models\n"
    "print(*[m for m in ('sepfx.ensembles', 'orbax', 'matplotlib') if m in sys.modules])"
  )
  done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
  assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


# Each imports from earlier layers alone, and those of one layer not from one another.
LAYERS = (
  ("moved",),
  ("cores", "errors", "lanewise", "outlets", "precision", "provenance"),
  ("interrupts", "kinds"),
  ("descriptions", "specifications"),
  ("tasks", "models"),
  ("training",),
  ("probes", "ensembles", "trusted"),
  ("statistics", "records"),
  ("drawing", "watching"),
  ("plotting",),
  ("summaries", "studies"),
  ("commands", "measuring"),
)


def imported(path):
  """The parts of sepfx that a module imports, wherever it does."""
  for node in ast.walk(ast.parse(path.read_text())):
    if isinstance(node, ast.ImportFrom) and node.module == "sepfx":
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sepfx."):
      yield node.module.split(".")[1]
    elif isinstance(node, ast.Import):
      names = [alias.name.split(".") for alias in node.names]
      yield from (name[1] for name in names if name[0] == "sepfx" and len(name) > 1)


def test_every_module_imports_from_the_layers_below_it():
  level = {name: k for k, layer in enumerate(LAYERS) for name in layer}
  for path in INSTRUMENT:
    own = path.relative_to(ROOT / "sepfx").parts[0].removesuffix(".py")
    for name in () if own == "__init__" else set(imported(path)) - {own}:
      below = level[name] < level[own]
      assert below, f"{path.relative_to(ROOT)} imports sepfx.{name}"


def test_papers_import_neither_one_another_nor_upward():
  package = ROOT / "experiments"
  for path in package.rglob("*.py"):
    parts = path.relative_to(package).parts
    for node in ast.walk(ast.parse(path.read_text())):
      if not isinstance(node, ast.ImportFrom):
        continue
      assert (node.module or "").partition(".")[0] != "experiments", path
      # A paper's folder is as many levels up as the module is deep; one more is outside.
      outside = node.level == len(parts) and len(parts) > 1
      if outside:
        names = [node.module] if node.module else [alias.name for alias in node.names]
        assert set(names) <= SHARED, f"{path.relative_to(ROOT)} imports {names}"


@pytest.mark.parametrize("part", ["sepfx", "experiments"])
def test_rooms_and_files_are_small(part):
  for folder in {path.parent for path in (ROOT / part).rglob("*.py")}:
    files = sorted(folder.glob("*.py"))
    assert len(files) <= 16, folder
    for path in files:
      assert len(path.read_text().splitlines()) <= 400, path

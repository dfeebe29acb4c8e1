"""The engine knows no paper, no task and no model by name; studies stay small."""

import ast
import io
import pathlib
import re
import subprocess
import sys
import tokenize

import pytest

ROOT = pathlib.Path(__file__).parent.parent
FORBIDDEN = re.compile("boolean|qstr|uniform|transformer|num_heads", re.IGNORECASE)
ENGINE = sorted(
  path
  for part in ("training", "ensembles")
  for path in (ROOT / "sepfx" / part).glob("*.py")
)
STUDIES = (
  "sample_complexity",
  "boolean_sample_complexity",
  "parity",
  "attention_weights",
)


def code_of(text):
  """A module without its docstrings, comments and what it draws from `jax.random`."""
  lines = text.splitlines(keepends=True)
  for node in ast.walk(ast.parse(text)):
    body = getattr(node, "body", None)
    first = body[0] if isinstance(body, list) and body else None
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
      for k in range(first.lineno - 1, first.end_lineno):
        lines[k] = "\n"
  tokens = tokenize.generate_tokens(io.StringIO("".join(lines)).readline)
  code = " ".join(t.string for t in tokens if t.type != tokenize.COMMENT)
  return re.sub(r"jax \. random \. \w+", "", code)


def test_the_check_finds_what_it_looks_for():
  assert FORBIDDEN.search(code_of('"""Fine: qstr."""\nx = "a_transformer"  # boolean\n'))
  assert not FORBIDDEN.search(
    code_of('"""qstr"""\n# boolean\nx = jax.random.uniform(k)\n')
  )


@pytest.mark.parametrize(
  "path", ENGINE, ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_the_engine_serves_no_paper(path):
  found = FORBIDDEN.search(code_of(path.read_text()))
  assert not found, found


def test_studies_say_only_what_is_their_own():
  bodies = {}
  for name in STUDIES:
    text = (ROOT / "experiments" / f"{name}.py").read_text()
    assert len(text.splitlines()) <= (80 if name == "parity" else 150), name
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


# Each imports from earlier layers alone, and those of one layer not from one another; but
# for constructions and theory, which lean on each other.
LAYERS = (
  (
    "anatomy",
    "cores",
    "errors",
    "lanewise",
    "origins",
    "outlets",
    "precision",
    "syntax",
  ),
  ("fingerprints", "kinds"),
  ("descriptions", "specifications"),
  ("loads",),
  ("sources",),
  ("tasks", "models"),
  ("training",),
  ("constructions", "theory"),
  ("probes", "ensembles"),
  ("analysis",),
  ("plotting",),
  ("summaries",),
  ("growth", "interrupts"),
  ("measuring",),
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
  together = {"constructions", "theory"}
  for path in (ROOT / "sepfx").rglob("*.py"):
    own = path.relative_to(ROOT / "sepfx").parts[0].removesuffix(".py")
    for name in () if own == "__init__" else set(imported(path)) - {own}:
      below = level[name] < level[own] or {name, own} == together
      assert below, f"{path.relative_to(ROOT)} imports sepfx.{name}"

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

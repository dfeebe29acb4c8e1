"""The documentation: its examples run, and what it says of the code is so."""

import importlib
import inspect
import json
import os
import pathlib
import re
import shlex
import subprocess
import textwrap
import time

import jax
import jax.numpy as jnp
import pytest

import sepfx
from sepfx import models
from sepfx.commands import catalogue, presets
from sepfx.models.mixers import MIXERS
from sepfx.tasks import QSTR, SparseBoolean
from tests.programs import each_model_checked_once

DOCS = pathlib.Path(__file__).parent.parent / "docs"
# Pages with examples: each page's blocks run one after another.
EXAMPLES = (
  "tutorial.md",
  "guides/own_model.md",
  "guides/own_mixer.md",
  "guides/token_tasks.md",
  "guides/own_probe.md",
  "guides/clusters.md",
  "guides/figures.md",
)


def blocks(page):
  return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_all_pages_with_python_are_known():
  pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
  found = {str(page) for page in pages if blocks(page)}
  assert found == set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run(page, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = {"__name__": "example"}
  for block in blocks(page):
    for package in re.findall(r"^import (ray|submitit)$", block, re.MULTILINE):
      pytest.importorskip(package)
    exec(compile(block, page, "exec"), names)
  assert set(names["records"].table["outcome"]) == {"reached"}
  for path in tmp_path.glob("runs/*"):
    assert sepfx.load(path).complete


def test_a_job_of_slurm_is_queued_again_when_its_share_has_kept_its_state(tmp_path):
  page = (DOCS / "guides/clusters.md").read_text()
  script = re.search(r"    #!/bin/bash\n(?:    .*\n)+", page)
  programs = {
    "sepfx": "trap 'sleep 0.5; exit 75' TERM; touch began; while :; do sleep 0.1; done",
    "scontrol": 'echo "$@"',
    "job": textwrap.dedent(script[0]),
  }
  for name, text in programs.items():
    (tmp_path / name).write_text(text if name == "job" else f"#!/bin/bash\n{text}\n")
    (tmp_path / name).chmod(0o755)
  ids = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "3"}
  path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
  job = subprocess.Popen(
    [tmp_path / "job"], cwd=tmp_path, env={**os.environ, **ids, **path},
    stdout=subprocess.PIPE, text=True,
  )  # fmt: skip
  while not (tmp_path / "began").exists():
    time.sleep(0.05)
  job.terminate()
  assert job.communicate()[0] == "requeue 7_3\n"
  assert job.returncode == 75


def commands():
  """Every command `sepfx STUDY ...` of the pages, those with placeholders left out."""
  found = set()
  for path in [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "BUILD.md"]:
    text = path.read_text().replace("\\\n", " ")
    shown = re.findall(
      r"^    (?:.*&& |srun )?(sepfx .*?)(?:\s+#.*)?$", text, re.MULTILINE
    )
    for line in [*shown, *re.findall(r"`(sepfx [^`]+)`", text)]:
      found.update(part.strip(" &") for part in re.split(r"&&|;", line))
  return sorted(c for c in found if not re.search(r"[A-Z]{3}|\.\.\.|\[|\$", c))


@pytest.mark.slow
@each_model_checked_once()
def test_commands_of_studies_are_understood():
  """The study is there, and its settings can be used."""
  understood, studies = 0, catalogue.studies("experiments")
  folder = DOCS.parent / "experiments" / "flags"
  for command in commands():
    _, name, *arguments = shlex.split(command)
    if name.startswith("--"):
      continue
    assert name in studies, command
    place = studies[name].module
    source = (DOCS.parent / f"{place.replace('.', '/')}.py").read_text()
    if "\nSTUDY = " in source:  # others define flags of one name, so not all can be here
      module = importlib.import_module(place)
      own = [a for a in presets.expanded(arguments, name, folder) if a != "--help"]
      chosen = module.STUDY.chosen(own)
      if any("--flagfile=" not in a for a in own):  # presets have tests of their own
        module.STUDY.cells(chosen)
      understood += 1
  assert understood > 40


def test_notebook_is_the_tutorial():
  notebook = json.loads((DOCS / "tutorial.ipynb").read_text())
  cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
  sources = ["".join(c["source"]).strip() for c in cells]
  assert sources == [block.strip() for block in blocks("tutorial.md")]


def counted(heading):
  """The table of models under a heading: name -> parameters."""
  (section,) = re.findall(
    rf"^## {heading}.*?(?=^## |\Z)",
    (DOCS / "models.md").read_text(),
    re.MULTILINE | re.DOTALL,
  )
  rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) \|$", section, re.MULTILINE)
  return {name: int(number.replace(",", "")) for name, number in rows}


@pytest.mark.parametrize(
  ("heading", "kind", "task", "inputs"),
  [
    ("Tokens", "regression", QSTR(length=12), None),
    ("Bits", "classification", SparseBoolean(length=100), (1, 100)),
  ],
)
def test_models_have_the_parameters_that_the_table_says(heading, kind, task, inputs):
  shape = inputs or (1, task.length, task.input_dim)
  inputs = jnp.zeros(shape, int if inputs else float)
  found = {}
  for name in models.NAMES[kind]:
    params = jax.eval_shape(models.build(name, task).init, jax.random.key(0), inputs)
    found[name] = sum(leaf.size for leaf in jax.tree.leaves(params))
  assert counted(heading) == found


def test_mixers_have_the_states_and_parameters_that_the_table_says():
  found = {}
  for name, mixer in MIXERS.items():
    own = mixer(width=64)
    params = jax.eval_shape(own.init, jax.random.key(0), jnp.zeros((1, 64, 64)))
    number = sum(leaf.size for leaf in jax.tree.leaves(params))
    found[name] = f"{own.state_size(64):,} | {number:,}"
  section = (DOCS / "models.md").read_text().partition("## Mixers")[2]
  rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+ \| [\d,]+) \|$", section, re.MULTILINE)
  assert dict(rows) == found


def modules_of_the_reference():
  for path in sorted((DOCS / "reference").glob("*.md")):
    for name in re.findall(r"automodule:: (\S+)", path.read_text()):
      yield importlib.import_module(name)


def test_every_public_name_is_in_the_reference_and_has_a_docstring():
  documented = {module.__name__ for module in modules_of_the_reference()}
  for package in ("tasks", "models", "training", "ensembles", "probes", "statistics",
                  "drawing", "records"):  # fmt: skip
    assert f"sepfx.{package}" in documented
  bounds = {f"sepfx.experiments.qstr.bounds.{path.stem}" for path in
            (DOCS.parent / "experiments/qstr/bounds").glob("[a-z]*.py")}  # fmt: skip
  assert bounds <= documented
  for module in modules_of_the_reference():
    own = getattr(module, "__all__", None) or [
      name for name, value in vars(module).items()
      if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]  # fmt: skip
    for name in own:
      value = getattr(module, name)
      if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value), f"{module.__name__}.{name}"


def test_pages_link_to_what_is_there():
  for path in [*DOCS.rglob("*.md"), DOCS.parent / "README.md", DOCS.parent / "BUILD.md"]:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text()):
      if "://" not in target:
        assert (path.parent / target).exists(), f"{path}: {target}"


def test_each_page_of_the_gallery_begins_with_its_verdict():
  index = (DOCS / "gallery" / "index.md").read_text()
  rows = re.findall(r"^\| \[[^]]*\]\((\w+\.md)\) \| (.*) \|$", index, re.MULTILINE)
  pages = {path.name for path in (DOCS / "gallery").glob("*.md")} - {"index.md"}
  assert sorted(name for name, _ in rows) == sorted(pages)
  for name, verdict in rows:
    title, first, *_ = (DOCS / "gallery" / name).read_text().split("\n\n")
    assert re.fullmatch("# .*", title), name
    assert first.replace("\n", " ").strip() == verdict, name

"""The command `sepfx`: its studies, their presets and flags, and what is installed."""

import pathlib
import subprocess
import sys
import tomllib

import pytest
from absl import flags

from sepfx import InvalidSetting
from sepfx.commands import catalogue, options, presets

ROOT = pathlib.Path(__file__).parent.parent
FLAGS = ROOT / "experiments/flags"
PRESETS = sorted(FLAGS.glob("*.cfg"))
STUDIES = catalogue.studies("experiments")


def sepfx(*arguments):
  command = [sys.executable, "-m", "experiments", *arguments]
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_every_program_is_a_study_with_one_line():
  done = sepfx("--help")
  programs = [
    (path.parent if path.stem == "study" else path).stem.replace("_", "-")
    for path in (ROOT / "experiments").rglob("*.py")
    if "\n  program.main(" in path.read_text() or "\n  command_line." in path.read_text()
  ]
  assert done.returncode == 0
  assert sorted(STUDIES) == sorted(programs)
  for name, entry in STUDIES.items():
    assert entry.question.endswith(("?", "."))
    assert f"  {name} " in done.stdout
    assert f" {entry.question}\n" in done.stdout


def test_an_unknown_study_is_refused_with_a_guess():
  done = sepfx("sample-complexty")
  assert done.returncode == 2
  assert "did you mean sample-complexity?" in done.stderr


def test_help_shows_every_flag_of_a_study():
  done = sepfx("sample-complexity", "--help")
  assert done.returncode == 0
  assert "fig1a, fig1b" in done.stdout
  names = ["lengths", "learning_rate", "against", "beside", *running_flags()]
  for name in names:
    assert f"\n  --{name}=" in done.stdout or f"\n  --[no]{name}\n" in done.stdout, name


def running_flags():
  defined = flags.FLAGS.flags_by_module_dict()
  return [flag.name for flag in defined[options.__name__]]


@pytest.mark.slow
def test_help_of_a_report_shows_no_flag_of_trials():
  done = sepfx("table-1", "--help")
  assert done.returncode == 0
  assert "--runs=" in done.stdout
  assert "--output_dir=" in done.stdout
  assert "--lanes" not in done.stdout


@pytest.mark.slow
def test_help_of_a_preset_is_what_its_file_says():
  for given in (["--preset=quickstart"], ["--preset", "quickstart"]):
    done = sepfx("sample-complexity", *given, "--help")
    assert done.returncode == 0
    assert done.stdout == (ROOT / "experiments/flags/quickstart.cfg").read_text()
  assert sepfx("parity", "--preset=quickstart", "--help").returncode == 2


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (("parity", "--preset=fig1a"), "--preset: got 'fig1a', takes nothing: parity has"),
    (("sample-complexity", "--lenghts=4"), "optimizer; did you mean --lengths?"),
    (
      ("suite", "--preset=suite_pairs", "--num_pairs=x"),
      "--num_pairs: got 'x', takes an",
    ),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in [
        (("sample-complexity", "--num_heads=2", "--models=gru"), "its optimizer\n"),
        (
          ("sample-complexity", "--models=transformer,gru", "--units=32"),
          "its optimizer; gru has it, as in gru:units=32\n",
        ),
        (("sample-complexity", "--prest=fig1a"), "optimizer; did you mean --preset?"),
        (("sample-complexity", "--quite"), "model; did you mean --quiet?"),
        (("sample-complexity", "--kernel=3"), "the protocol Online, its optimizer\n"),
        (("table-1", "--out_dir=a"), "(see --help); did you mean --output_dir?"),
        (("sample-complexity", "--noquiet=3"), "--noquiet=3 does not take an argument"),
      ]
    ),
  ],
)
def test_what_is_wrong_exits_with_2(arguments, message):
  done = sepfx(*arguments)
  assert done.returncode == 2
  assert message in done.stderr


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.stem)
def test_every_preset_belongs_to_one_study(path):
  assert len([name for name in STUDIES if path.stem in presets.of(name, FLAGS)]) == 1


def test_a_preset_is_a_flag_file():
  for given in (["--preset=fig1a"], ["--preset", "fig1a"]):
    (found,) = presets.expanded(given, "sample-complexity", FLAGS)
    assert found == f"--flagfile={ROOT / 'experiments/flags/fig1a.cfg'}"
  for given in (["--preset=best_rate"], ["--preset"]):
    with pytest.raises(InvalidSetting, match=r"takes one of fig1_.*, quickstart"):
      presets.expanded(given, "sample-complexity", FLAGS)


def test_every_package_is_installed():
  told = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
  there = {
    ".".join(path.parent.relative_to(ROOT).parts)
    for part in ("sepfx", "experiments")
    for path in (ROOT / part).rglob("__init__.py")
  }
  renamed = {n.replace("experiments", "sepfx.experiments") for n in there}
  assert set(told["packages"]) == renamed

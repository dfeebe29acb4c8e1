"""The command line: what it refuses, before anything is compiled or written."""

import dataclasses
import functools
import io

import pandas
import pytest
from absl import flags
from absl.testing import flagsaver

import sepfx
from experiments.boolean import boolean_sample_complexity as boolean
from experiments.boolean import parity
from experiments.qstr import attention_weights
from experiments.sample_complexity import STUDY
from sepfx import InvalidSetting
from sepfx.commands import command_line, options, program
from sepfx.ensembles import grid
from sepfx.tasks import QSTR
from tests import small
from tests.test_sample_complexity import cells_of


@pytest.fixture(autouse=True)
def _fresh_flags():
  with flagsaver.flagsaver():
    yield


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--models=tranformer"], "models: got 'tranformer', takes transformer, ffn"),
    (["--models="], "models: got"),
    (["--models=tests.small:nothing"], "models: got"),
    (["--lengths=1,4"], "lengths: got 1, takes an integer >= 2"),
    (["--lengths=four"], "lengths: got 'four', takes an integer"),
    (["--lengths="], "lengths: got"),
    (["--lengths=4,6", "--sparsity=5"], "sparsity: got 5"),
    (["--sparsity=0"], "sparsity: got 0"),
    (["--token_dim=0"], "token_dim: got 0"),
    (["--batch_size=0"], "batch_size: got 0"),
    (["--check_every=-1"], "check_every: got -1"),
    (["--num_test=0"], "num_test: got 0"),
    (["--models=transformer:num_heads=0"], "models: got 'transformer:num_heads=0'"),
    (
      ["--models=transformer:num_heads=x"],
      "models: got 'transformer:num_heads=x', takes an int",
    ),
    (
      ["--models=sepfx.models:DenseFirst"],
      "models: got 'sepfx.models:DenseFirst', takes a factory that needs nothing but",
    ),
    (["--models=dense_transformer:width=0"], "models: .*width: got 0, takes an integer"),
    (["--models=linear_attention:head_dim=0"], "models: .*head_dim: got 0, takes an int"),
    (["--models=min_gru:units=0"], "models: .*units: got 0, takes an integer >= 1"),
    (["--models=deep_transformer:mlp_width=0"], "models: .*mlp_width: got 0, takes an"),
    (
      ["--models=dense_convolution", "--kernel_size=2"],
      "kernel_size: got 2, takes an odd number|kernel_size: got 2",
    ),
    (
      ["--num_parameters=50000", "--models=transformer", "--width=20"],
      "num_parameters: got 'transformer', takes a model without width, which it sets",
    ),
    (
      ["--num_parameters=50000", "--models=deep_transformer:num_heads=8"],
      "num_parameters: got 'deep_tr.*, takes a model without num_heads, which it sets",
    ),
    (["--places=random"], "places: got 'random', takes first, unless there is a max_le"),
    (
      ["--optimizer=adamw:learning_rate=5e-3"],
      "optimizer: got 'adamw:learning_rate=5e-3', takes no learning_rate, which is a",
    ),
    (["--optimizer=lion:learning_rate=5e-3"], "optimizer: .* takes no learning_rate"),
    (["--models=transformer:heads=1"], "takes the fields num_heads, parametrization"),
    (["--width=20"], "width: got 20, takes a field of .*, the model ffn"),
    (["--width=20", "--models=transformer,gru"], "a field of .*, the model gru, "),
    (["--length=4"], "length: got '4', takes nothing: its flag is --lengths"),
    (
      ["--widht=20"],
      "widht: got 20, takes a field of the task qstr, the model transformer, "
      "the protocol Online, its optimizer",
    ),
    (["--models=transformer", "--width=20.5"], "width: got '20.5', takes an integer"),
    (["--width="], "width: got '', takes at least one value"),
    (["--width=20,,30"], "width: got '20,,30', takes at least one value"),
    (["--width=20", "--width=30"], "width: got '30', takes its values in one flag"),
    (["--width", "20"], "argument: got '--width', takes a flag .* or --FIELD=VALUE"),
    (["--batch_size=8,8.5"], "batch_size: got '8.5', takes an integer"),
    (["--learning_rate="], "learning_rate: got '', takes at least one value"),
    (["--seed=0,1"], "seed: got '0,1', takes one value: it cannot be an axis"),
    (["--max_samples=10000,20000"], "max_samples: .* takes one value: it cannot be"),
    (["--num_trials=2,3"], "num_trials: got '2,3', takes one value"),
    (["--check_every=5,10"], "check_every: got '5,10', takes one value"),
    (["--optimizer=adamx"], "optimizer: got 'adamx', takes adamw, or the name"),
    (
      ["--optimizer=sgd", "--weight_decay=0,0.1"],
      "weight_decay: .* its default with sgd",
    ),
    (
      ["--optimizer=adamw:warmup_steps=9:decay_steps=8"],
      "optimizer: got 'adamw:warmup.*', takes 0, or an integer above .* as decay_steps",
    ),
    (["--optimizer=adamw:rate=1"], "takes the fields learning_rate, .* of adamw"),
    (["--task=qstrs"], "task: got 'qstrs', takes qstr, simple_qstr, package"),
    (["--link=cubic"], "link: got 'cubic', takes one of linear, mean"),
    (["--link_width=4"], "link_width: got 4, takes none with the link linear"),
    (["--link=relu_teacher", "--link_width=0"], "link_width: got 0, takes an integer"),
    (["--codes=morse"], "codes: got 'morse', takes one of rademacher"),
    (["--task_draw=once"], "task_draw: got 'once', takes one of per_trial, shared"),
    (["--test_distribution=odd"], "test_distribution: got 'odd', takes one of matched"),
    (["--screen=maybe"], "screen: got 'maybe', takes true or false"),
    (["--thresholds=0.5,0"], "thresholds: got 0.0"),
    (["--thresholds="], "thresholds: got '', takes at least one, or --uniform_fractions"),
    (["--thresholds=low"], "thresholds: got 'low', takes a number"),
    (["--thresholds=1"], "thresholds: got 1.0, takes numbers below 1, the error"),
    (["--link=mean", "--sparsity=2", "--thresholds=0.5"], "thresholds: got 0.5"),
    (["--uniform_fractions=1"], "uniform_fractions: got 1.0, takes numbers between"),
    (["--uniform_fractions=half"], "uniform_fractions: got 'half', takes a number"),
    (
      ["--uniform_fractions=0.5", "--link=relu_teacher"],
      r"uniform_fractions: got \[0.5\], takes nothing for a task",
    ),
    (["--learning_rate=0"], "learning_rate: got 0"),
    (["--learning_rate=inf"], "learning_rate: got inf"),
    (["--weight_decay=-1"], "weight_decay: got -1"),
    (["--max_samples=100"], "max_samples: got 100"),
    (["--code_dim=0"], "code_dim: got 0"),
    (["--code_dim=2000000"], "code_dim: got 2000000, takes an integer from 1 to 1048576"),
    (["--lengths=2147483648"], "lengths: got 2147483648, takes an integer between"),
    (
      ["--lengths=2000000"],
      "lengths: got 2000000, takes an integer >= 2, at most",
    ),
    (["--token_dim=2000000"], "token_dim: got 2000000, takes an integer >= 1, at most"),
    (["--lengths=500", "--sparsity=101"], "sparsity: got 101, takes .* 1 to 100"),
    (["--max_samples=1" + "0" * 24], "max_samples: got 10*, takes fewer than 2"),
    (
      ["--published=" + "x" * 5000],
      "published: got .* characters., takes nothing or one",
    ),
    (["--batch_size=2147483648"], "batch_size: got 2147483648, takes an integer between"),
  ],
)
def test_bad_flags_are_refused(arguments, message):
  with pytest.raises(InvalidSetting, match=message):
    cells_of(*arguments)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    (["--checkpoint_every_seconds=0"], "checkpoint_every_seconds: got 0"),
    (["--max_minutes=0"], "max_minutes: got 0.0, takes a positive number"),
    (["--dry_run", "--share=0/2"], "dry_run: got True, takes a call without --share"),
    (["--merge", "--share=0/2"], "merge: got True, takes a call without --share"),
    (["--lanes=-1"], "lanes: got -1, takes an integer from 1 to 4096, or 0"),
    (["--lanes=1000000000"], "lanes: got 1000000000, takes an integer from 1 to 4096"),
  ],
)
def test_bad_ways_of_running_are_refused(arguments, message):
  flags.FLAGS(["program", *arguments])
  with pytest.raises(InvalidSetting, match=message):
    options.start()


@pytest.mark.parametrize(
  ("own", "argument", "message"),
  [
    *(
      (own, f"--num_trials={count}", f"num_trials: got {count}, takes an integer >= 1")
      for own in (STUDY, parity.STUDY, boolean.STUDY, attention_weights.STUDY)
      for count in (0, -1, 100_001)
    ),
    (STUDY, "--seed=-1", "seed: got -1, takes an integer from 0 to 2"),
    (parity.STUDY, "--against=noise", "against: got 'noise', takes length"),
  ],
)
def test_a_run_is_refused_before_anything_is_written(tmp_path, own, argument, message):
  flags.FLAGS(["program", argument, f"--output_dir={tmp_path}/run"], known_only=True)
  with pytest.raises(InvalidSetting, match=message):
    program.run(own, own.chosen([argument]))
  assert not list(tmp_path.iterdir())


def test_a_task_that_cannot_be_drawn_leaves_no_settings(tmp_path):
  arguments = ["--code_dim=1", "--codes=distinct", "--lengths=4", "--models=transformer"]
  flags.FLAGS(["program", f"--output_dir={tmp_path}/run"], known_only=True)
  with pytest.raises(InvalidSetting, match="code_dim: got 1, takes a dimension in which"):
    program.run(STUDY, STUDY.chosen(arguments))
  assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]


@pytest.mark.parametrize(
  ("argument", "words"),
  [("--flagfile=nowhere.cfg", "nowhere.cfg"), ("--lanes=some", "flag --lanes=some")],
)
def test_flags_that_absl_refuses_are_a_line_and_exit_2(capfd, argument, words):
  with pytest.raises(SystemExit) as ended:
    command_line.parsed(["program", argument])
  assert ended.value.code == 2
  (line,) = capfd.readouterr().err.splitlines()
  assert line.startswith("error: ")
  assert words in line


@dataclasses.dataclass(frozen=True)
class Named(QSTR):
  """A task of any name, with a setting that is text."""

  called: str = "named"
  note: str = "some"

  @property
  def name(self):
    return self.called


@pytest.mark.parametrize(
  "name", ["a\nb", "a\rb", "a\x1b[0m", "a\u2028", "a\udcff", "a\0"]
)
def test_names_with_control_characters_are_refused(name):
  takes = "takes letters that can be printed, no control characters"
  for settings in (
    {"models": small.Linear(name=name)},
    {"task": Named(token_dim=2, called=name)},
    {"task": Named(token_dim=2), "axes": {"note": ["fine", name]}},
  ):
    with pytest.raises(InvalidSetting, match=takes):
      sepfx.measure(**{**OWN, **settings})


TEXTS = (
  "", "#N/A", "#NA", "-1.#IND", "-NaN", "-nan", "1.#QNAN", "<NA>", "N/A", "NA", "NULL",
  "NaN", "None", "n/a", "nan", "null", "none", "na", "Nan", "NA2", "gru",
)  # fmt: skip


def test_names_that_pandas_reads_as_missing_are_refused():
  """And no others."""
  message = "takes a text that pandas does not read as a missing value"
  for text in TEXTS:
    read = pandas.read_csv(io.StringIO(f'name,n\n"{text}",1\n'))
    cells = functools.partial(grid, lambda model: named(model), {"model": [text]})
    if read["name"].isna().item():
      with pytest.raises(InvalidSetting, match=message):
        cells()
    else:
      assert cells()
  for settings in (
    {"models": small.Linear(name="NA")},
    {"task": Named(token_dim=2, called="NA")},
    {"task": Named(token_dim=2), "axes": {"note": ["fine", "NA"]}},
  ):
    with pytest.raises(InvalidSetting, match=message):
      sepfx.measure(**{**OWN, **settings})


def named(text):
  trial = dataclasses.replace(small.TRIAL, model=small.Linear(name=text))
  return dataclasses.replace(trial, model_name=text)


OWN = {"task": QSTR(token_dim=2), "models": small.Linear(), "lengths": 3}

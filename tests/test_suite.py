"""Mixers by tasks: the suite."""

import dataclasses
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

import sepfx
from experiments.suite import matrix, pictures
from experiments.suite.study import STUDY
from sepfx.ensembles import Records, table, trial_name
from sepfx.errors import InvalidSetting
from sepfx.models.building import modes
from sepfx.models.mixers import MIXERS, Mixer
from sepfx.statistics.series import series
from sepfx.studies.beside import tasks_of
from sepfx.studies.study import Run, StudyCall
from sepfx.tasks.tokens import MQAR, TASKS, Sequences, TokenTask
from tests.programs import ROOT, check_preset_says_what_it_is


class Leaks(nn.Module):
  """Each token with the next one added."""

  width: int

  def __call__(self, rows):
    return rows.at[:, :-1].add(rows[:, 1:])


class Silent(Mixer):
  """Does not say what it carries."""

  def __call__(self, rows):
    return rows


class Counts(nn.Module):
  """Knows nothing of caches."""

  width: int

  def state_size(self, length):
    return 3 * length

  def __call__(self, rows):
    return rows


class LeaksLater(nn.Module):
  """Each token with the next one's, of which a gate lets nothing through at first."""

  width: int

  @nn.compact
  def __call__(self, rows):
    gate = self.param("gate", nn.initializers.zeros, ())
    return rows.at[:, :-1].add(gate * rows[:, 1:])


class Wider(nn.Module):
  """Gives more than it gets."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return nn.Dense(2 * self.width)(rows)


class Turns(nn.Module):
  """Gives complex numbers."""

  width: int

  def __call__(self, rows):
    return rows * 1j


class LeaksUpwards(nn.Module):
  """Each token with the next one's, by the root of a weight that is zero at first."""

  width: int

  @nn.compact
  def __call__(self, rows):
    gate = self.param("gate", nn.initializers.zeros, (self.width,))
    return rows.at[:, :-1].add(jnp.sqrt(gate) * rows[:, 1:])


class Halves(nn.Module):
  """Sums of bfloat16."""

  width: int

  @nn.compact
  def __call__(self, rows):
    init = nn.initializers.normal(dtype=jnp.bfloat16)
    own = self.param("own", init, (self.width,), jnp.bfloat16)

    def add(state, row):
      state = state + own * row
      return state, state

    start = jnp.zeros((len(rows), self.width), jnp.bfloat16)
    rows = jnp.moveaxis(rows, 1, 0).astype(jnp.bfloat16)
    return jnp.moveaxis(jax.lax.scan(add, start, rows)[1], 0, 1)


class Masked(nn.Module):
  """Wants a mask."""

  width: int

  def __call__(self, rows, mask):
    return rows * mask


class Drops(nn.Module):
  """Draws where it is evaluated, too."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return nn.Dropout(0.1, deterministic=False)(rows)


class Told(nn.Module):
  """Drops everything while it learns, as its call says."""

  width: int

  @nn.compact
  def __call__(self, rows, deterministic):
    return nn.Dropout(1.0)(nn.Dense(self.width)(rows), deterministic=deterministic)


class Loops(nn.Module):
  """Has no gradient: how often a loop runs is not known before."""

  width: int

  @nn.compact
  def __call__(self, rows):
    rows = nn.Dense(self.width)(rows)
    return jax.lax.while_loop(lambda own: jnp.max(own) > 1, lambda own: own / 2, rows)


class Masks(nn.Module):
  """Has a parameter that is no number."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return jnp.where(self.param("mask", lambda _: jnp.array(True)), rows, 0)


class Asks(nn.Module):
  """Asks what is not known while a model is traced."""

  width: int

  def __call__(self, rows):
    return -rows if rows[0, 0, 0] > 0 else rows


class Reads(nn.Module):
  """Raises in a library, the frames of which are of no use."""

  width: int

  def __call__(self, rows):
    return json.loads("{")


class HasSize(nn.Module):
  """Says how many numbers it carries where it is asked for a method."""

  width: int

  @property
  def state_size(self):
    return self.width

  def __call__(self, rows):
    return rows


class SaysMany(nn.Module):
  """Carries a number of numbers that is none."""

  width: int

  def state_size(self, length):
    return self.width / 2

  def __call__(self, rows):
    return rows


class Multiplies(nn.Module):
  """Counts what it carries with NumPy."""

  width: int

  def state_size(self, length):
    return np.prod((2, self.width))

  def __call__(self, rows):
    return rows


class Averages(nn.Module):
  """Has statistics of batches."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return nn.BatchNorm(use_running_average=False)(rows)


class Chunks(nn.Module):
  """Sums that see the future within chunks of 16 tokens, but for the first chunk."""

  width: int

  @nn.compact
  def __call__(self, rows):
    place = jnp.arange(rows.shape[1])
    chunk = place // 16
    seen = (place[:, None] >= place) | ((chunk[:, None] == chunk) & (chunk > 0))
    return jnp.einsum("ij,njd->nid", 1.0 * seen, nn.Dense(self.width)(rows))


class Plain:
  """No module."""

  def __init__(self, width):
    self.width = width


@dataclasses.dataclass(frozen=True)
class First(TokenTask):
  """Asks for the first token at the end; or something that is wrong."""

  wrong: str = "nothing"
  length: int = 8
  num_answers: int = 6

  name = "first"
  vocabulary = 6

  def __post_init__(self):
    if self.length < 0:
      raise ValueError("no such length")

  def draw(self, key, n):
    tokens = jax.random.randint(key, (n, self.length), 0, self.vocabulary)
    asked, labels = jnp.full((n, 1), self.length - 1), tokens[:, :1]
    if self.wrong == "traced" and tokens[0, 0] > 2:
      tokens = tokens + 1
    numbers = jnp.asarray(np.random.randint(6, size=(n, self.length)))
    if self.wrong == "many":
      tokens = jax.random.randint(key, (100, self.length), 0, self.vocabulary)
      asked, labels = jnp.full((100, 1), self.length - 1), tokens[:, :1]
    return {
      "nothing": Sequences(tokens, asked, labels),
      "many": Sequences(tokens, asked, labels),
      "tokens": Sequences(tokens + 1, asked, labels),
      "types": Sequences(tokens.astype(float), asked, labels),
      "asked": Sequences(tokens, asked + 1, labels),
      "shapes": Sequences(tokens, asked[:, 0], labels[:, 0]),
      "labels": Sequences(tokens, asked, labels + self.vocabulary),
      "silent": Sequences(tokens, asked, jnp.full_like(labels, -1)),
      "numbers": Sequences(numbers, asked, numbers[:, :1]),
    }[self.wrong]


@dataclasses.dataclass(frozen=True)
class Everywhere(First):
  """Asks for each token where it stands."""

  name = "everywhere"

  def draw(self, key, n):
    sample = super().draw(key, n)
    return sample._replace(labels=sample.tokens)

  def encode(self, planted, sample):
    return sample.tokens


class Reversed(MQAR):
  """Another task by the name of one that is there."""


class Sums(nn.Module):
  """Sums of all tokens so far."""

  width: int

  @nn.compact
  def __call__(self, rows):
    return nn.Dense(self.width)(rows.cumsum(axis=1))


def cells_of(*arguments):
  return STUDY.cells(STUDY.chosen(arguments))


def test_all_tasks_and_mixers_make_trials():
  cells = cells_of(
    f"--tasks={','.join(TASKS)}", "--models=attention,delta", "--learning_rates=1e-3"
  )
  assert len(cells) == 2 * len(TASKS)
  for cell in cells:
    assert cell.trial.task.vocabulary == cell.trial.model.vocabulary
  names = ",".join(MIXERS)
  assert len(cells_of("--tasks=word_problem_Z2", f"--models={names}")) == 7 * len(MIXERS)


def test_fields_of_tasks_mixers_and_the_backbone_are_settings():
  (cell,) = cells_of(
    "--tasks=mqar:num_pairs=2:length=16", "--models=attention:num_heads=4",
    "--learning_rates=1e-3", "--num_layers=3", "--width=32", "--positions=none",
  )  # fmt: skip
  assert (cell.trial.task.num_pairs, cell.trial.task.length) == (2, 16)
  model = cell.trial.model
  assert (model.num_layers, model.width, model.positions) == (3, 32, "none")


def test_a_mixer_of_ones_own_is_taken_and_one_that_leaks_is_refused_by_name():
  rates = "--learning_rates=1e-3"
  (cell,) = cells_of("--tasks=word_problem_Z2", f"--models={__name__}:Sums", rates)
  assert cell.coordinates["model"] == f"{__name__}:Sums"
  with pytest.raises(InvalidSetting, match=f"{__name__}:Leaks.*output 0.*input 1"):
    cells_of("--tasks=word_problem_Z2", f"--models={__name__}:Leaks", rates)


@pytest.mark.parametrize(
  ("argument", "what"),
  [
    ("--tasks=sorting", "tasks.*mqar"),
    ("--tasks=mqar:pairs=2", "tasks.*num_pairs"),
    ("--tasks=mqar,mqar:num_pairs=2", "tasks.*different names"),
    ("--models=attentive", "models.*attention"),
    ("--models=delta:heads=2", "models.*num_heads"),
    ("--norm=lyer", "norm"),
    ("--models=delta+gru+attention", "at most one for each of 2 layers"),
    ("--tasks=tests.test_suite:Sums:width=3", "a task of tokens, which has name"),
  ],
)
def test_bad_settings_are_refused(argument, what):
  with pytest.raises(InvalidSetting, match=what):
    cells_of("--tasks=word_problem_Z2", "--models=delta", argument)


def run_of(*arguments, n_of, outcome_of=lambda _: "reached"):
  """A run and its summary: n of each cell, how it is bounded, and how its trial ended.

  Cells of which n is None have no trial.
  """
  chosen = STUDY.chosen(["--learning_rates=1e-3", *arguments])
  every = STUDY.cells(chosen, shipped=True)  # not checked
  cells = [cell for cell in every if n_of(cell) is not None]
  rates = {cell.coordinates["learning_rate"] for cell in every}
  names = tuple(cells[0].coordinates)
  kinds = {name: type(value) for name, value in cells[0].coordinates.items()}
  kinds |= {"trial": int, "threshold": float, "samples": int, "outcome": str}
  rows = [(*cell.coordinates.values(), 0, 0.1, 64, outcome_of(cell)) for cell in cells]
  records = Records(table(rows, kinds), names, {})
  run = Run(records, {cell.name: cell for cell in every}, None, "length")
  best = []
  lines = series(records, ("length", "learning_rate"))
  for name, cell in zip(lines, cells, strict=True):
    n, bound = n_of(cell)
    own = {"mean": n, "low": n / 2, "high": 2 * n, "learning_rate": 1e-3}
    own |= {"restricted": bound in ("more than", "open")}
    own |= {"edge": bound in ("at most", "open")}
    own |= {"at_most": bound == "first check", "tried": sorted(rates)}
    best.append({"series": name, "length": cell.coordinates["length"], **own})
  summary = {"best": best, "levels": [{"value": 0.1}]}
  return {**summary, "matrix": matrix.entries(summary, run)}


def test_the_matrix_holds_each_mixer_against_attention():
  n_of = {
    ("dyck", "delta"): (200.0, ""), ("dyck", "attention"): (100.0, ""),
    ("mqar", "delta"): (300.0, "more than"),
    ("mqar", "attention"): (100.0, "first check"),
    ("k_hop", "delta"): (300.0, ""), ("k_hop", "attention"): (900.0, "more than"),
    ("k_hop", "gru"): (900.0, "more than"), ("mqar", "gru"): (400.0, ""),
    ("dyck", "gru"): (150.0, "open"),
  }  # fmt: skip
  summary = run_of(
    "--tasks=dyck,mqar,k_hop", "--models=delta,attention,gru",
    n_of=lambda cell: n_of[cell.coordinates["task"], cell.coordinates["model"]],
  )  # fmt: skip
  over = {
    (c["task"], c["model"]): (c["over"], c["over_bound"]) for c in summary["matrix"]
  }
  assert over["dyck", "delta"] == (2.0, "")
  assert over["mqar", "delta"] == (3.0, "more than")
  assert over["k_hop", "delta"] == (1 / 3, "at most")  # attention's n is a bound
  assert over["mqar", "attention"] == (1.0, "")
  assert over["k_hop", "gru"] == (None, "")  # both are bounds of one kind
  assert over["mqar", "gru"] == (4.0, "more than")
  assert over["dyck", "gru"] == (None, "")
  (axis, _) = pictures.draw(summary).axes
  assert {text.get_text() for text in axis.texts} == {
    "200", "100", "> 300", "< 100", "300", "> 900", "400", "<> 150",
  }  # fmt: skip
  shown = axis.images[0].get_array()
  assert np.ma.count_masked(np.ma.masked_invalid(shown)) == 2  # gru on k_hop and dyck
  rows, words = matrix.table(summary)
  assert len(rows.rows) == 9
  assert {*list(rows.columns)[-2].cells} == {"0.001, alone"}
  assert "below 0.1" in words
  assert "n over that of attention." in words


def test_n_is_bold_where_its_interval_is_not_that_of_the_reference():
  n_of = {  # intervals go from half to twice
    "attention": (100.0, ""), "delta": (401.0, ""), "gla": (399.0, ""), "gru": (24.0, ""),
    "min_gru": (26.0, ""), "based": (402.0, "more than"), "mamba2": (403.0, "at most"),
    "rg_lru": (23.0, "at most"), "rwkv7": (404.0, "open"),
  }  # fmt: skip
  summary = run_of(
    "--tasks=dyck", f"--models={','.join(n_of)}",
    n_of=lambda cell: n_of[cell.coordinates["model"]],
  )  # fmt: skip
  (axis, bar) = pictures.draw(summary).axes
  bold = {text.get_text() for text in axis.texts if text.get_weight() == "bold"}
  assert bold == {"401", "24", "> 402", "< 23"}
  assert "bold" in bar.get_ylabel()


@pytest.mark.parametrize(
  ("fields", "span"),
  [
    ({}, (-np.inf, np.inf)),
    ({"restricted": True}, (-np.inf, np.inf)),  # one of several spent its budget
    ({"restricted": True, "learning_rate": None}, (500, np.inf)),  # all did
    ({"at_most": True}, (-np.inf, 500)),  # all reached at the first check
    ({"edge": True}, (-np.inf, np.inf)),
    ({"low": 400, "high": 600}, (400, 600)),
    ({"low": 400, "high": 600, "restricted": True}, (400, np.inf)),
    ({"low": 400, "high": 600, "edge": True}, (-np.inf, 600)),
  ],
)
def test_n_is_within_its_interval_or_what_bounds_it(fields, span):
  alone = {"mean": 500, "low": None, "high": None, "learning_rate": 1e-3}
  best = alone | {"restricted": False, "edge": False, "at_most": False} | fields
  assert matrix._span(best) == span


def test_the_matrix_is_in_the_order_in_which_mixers_and_tasks_were_asked_for():
  def n_of(cell):  # the last mixer's search alone came to the least rate
    least = cell.coordinates["learning_rate"] == 1e-4
    return None if least and cell.coordinates["model"] != "gru" else (100.0, "")

  summary = run_of(
    "--tasks=mqar,dyck", "--models=delta,attention,gru", "--learning_rates=1e-4,1e-3",
    n_of=n_of,
  )  # fmt: skip
  cells = [(cell["task"], cell["model"]) for cell in summary["matrix"]]
  models = ["delta", "attention", "gru"]
  assert list(dict.fromkeys(cells)) == [(t, m) for t in ("mqar", "dyck") for m in models]


def test_the_table_says_where_all_trials_diverged():
  def outcome(cell):
    lost = cell.coordinates["learning_rate"] > 1e-3
    return "diverged" if lost or cell.coordinates["model"] == "gru" else "reached"

  summary = run_of(
    "--tasks=dyck", "--models=delta,gru", "--learning_rates=1e-3,1e-2",
    n_of=lambda _: (100.0, ""), outcome_of=outcome,
  )  # fmt: skip
  counts = {c["model"]: (c["diverged"], c["trials"]) for c in summary["matrix"]}
  assert counts == {"delta": (1, 2), "gru": (2, 2)}
  rows, _ = matrix.table(summary)
  _, models, *_, rates, _ = (list(column.cells) for column in rows.columns)
  said = set(zip(models, rates, strict=True))
  assert said == {("delta", "0.001"), ("gru", "0.001, all diverged")}


OWN = ",".join(f"{__name__}:{own}" for own in ("Sums", "Silent", "Counts", "Multiplies"))


def test_states_are_counted_with_and_without_caches():
  summary = run_of(
    "--tasks=mqar", f"--models=delta,attention,{OWN}", "--width=8", "--convolution=0",
    n_of=lambda _: (100.0, ""),
  )  # fmt: skip
  sizes = [(cell["state"], cell["memory"]) for cell in summary["matrix"]]
  # Two layers: a matrix, and three caches of three tokens; keys and values of 32 tokens.
  attention = 2 * 2 * 32 * 8
  assert sizes[:2] == [(2 * (64 + 72), 2 * 64), (attention, attention)]
  assert sizes[2:] == [(None, None), (None, None), (2 * 96, 2 * 96), (32, 32)]
  assert json.loads(json.dumps(sizes[-1])) == [32, 32]


def test_n_is_drawn_against_a_tasks_difficulty():
  n_of = {2: (100.0, "at most"), 4: (300.0, "more than")}
  summary = run_of(
    "--tasks=mqar", "--models=delta,attention", "--num_pairs=2,4",
    n_of=lambda cell: n_of[cell.coordinates["num_pairs"]],
  )  # fmt: skip
  tasks = {cell["task"] for cell in summary["matrix"]}
  assert tasks == {"mqar, num_pairs=2", "mqar, num_pairs=4"}
  assert {cell["model"] for cell in summary["matrix"]} == {"delta", "attention"}
  figure = pictures.draw(summary)
  (axis,) = figure.axes
  assert axis.get_xlabel() == "num pairs"
  arrows = [line.get_ydata() for line in axis.lines if "arrow" in str(line.get_marker())]
  assert sorted(n for own in arrows for n in own) == [50, 50, 300, 300]
  low, high = axis.get_ylim()
  assert low < 50 / 1.2  # room for arrows
  assert high > 300 * 1.2
  (legend,) = figure.legends
  names = [text.get_text() for text in legend.get_texts()]
  assert names == ["delta", "attention", "more than", "at most"]


def test_n_is_drawn_against_the_size_of_states():
  summary = run_of(
    "--tasks=mqar", "--models=min_gru,delta", "--width=8,16",
    n_of=lambda cell: (100.0 * cell.coordinates["width"], ""),
  )  # fmt: skip
  labels = {cell["model"] for cell in summary["matrix"]}
  assert labels == {f"{of}, width={w}" for of in ("delta", "min_gru") for w in (8, 16)}
  (axis,) = pictures.draw(summary).axes
  assert "carried" in axis.get_xlabel()
  lines = [line.get_xdata() for line in axis.lines if len(line.get_xdata()) == 2]
  ratios = {round(float(x[1] / x[0]), 6) for x in lines if x[1] != x[0]}
  assert ratios == {2, 4}  # a vector of the width, and a matrix


def lines_of(summary):
  """Places of the points of each line of a picture, by its name."""
  figure = pictures.draw(summary)
  ((axis,), (legend,)) = figure.axes, figure.legends
  names = [text.get_text() for text in legend.get_texts()]
  signs = ("_", "$", "N")  # ends of intervals, arrows, none
  marked = [l for l in axis.lines if not str(l.get_marker() or "N").startswith(signs)]
  marked = [l for l in marked if len(l.get_xdata())]
  assert len(names) == len(marked)
  return dict(zip(names, (l.get_xdata() for l in marked), strict=True)), axis


def test_a_line_against_the_size_of_states_is_of_one_axis_alone():
  heads = ",".join(["delta", *(f"delta:num_heads={k}" for k in (2, 8))])
  summary = run_of(
    "--tasks=mqar", f"--models={heads},gru", "--width=16,32", n_of=lambda _: (1e3, "")
  )
  lines, _ = lines_of(summary)
  assert list(lines) == ["delta, width=16", "delta, width=32", "gru"]
  sizes = [[2 * width**2 / k for k in (8, 2, 1)] for width in (16, 32)]
  for name, wanted in zip(lines, [*sizes, [2 * 16, 2 * 32]], strict=True):
    np.testing.assert_allclose(lines[name], wanted, rtol=0.1)  # a little aside


def test_a_line_is_called_by_what_does_not_differ_on_it():
  models = "delta:num_heads=4,based:feature_dim=4,gru:dtype=float32,gru:dtype=bfloat16"
  summary = run_of(
    "--tasks=mqar", f"--models={models}", "--width=16,32", n_of=lambda _: (1e3, "")
  )
  lines, _ = lines_of(summary)
  assert {name: len(places) for name, places in lines.items()} == {
    "delta, num_heads=4": 2,
    "based, feature_dim=4": 2,
    "gru, dtype=float32": 2,
    "gru, dtype=bfloat16": 2,
  }


def test_mixers_of_one_size_leave_the_lines_of_others():
  models = "delta,delta:num_heads=4,gru:dtype=float32,gru:dtype=bfloat16"
  summary = run_of("--tasks=mqar", f"--models={models}", n_of=lambda _: (1e3, ""))
  lines, _ = lines_of(summary)
  assert {name: len(places) for name, places in lines.items()} == {
    "delta": 2,
    "gru, dtype=float32": 1,
    "gru, dtype=bfloat16": 1,
  }


def test_what_changes_no_size_is_no_axis_of_a_line():
  summary = run_of(
    "--tasks=mqar", "--models=delta", "--width=16,32", "--weight_decay=0,0.01,0.1",
    n_of=lambda _: (1e3, ""),
  )  # fmt: skip
  lines, _ = lines_of(summary)
  assert list(lines) == [f"delta, weight_decay={own}" for own in ("0", "0.01", "0.1")]
  assert [len(places) for places in lines.values()] == [2, 2, 2]


def test_a_point_that_is_alone_stands_at_its_size():
  summary = run_of(
    "--tasks=mqar", "--models=delta,linear_attention,delta:num_heads=2",
    n_of=lambda _: (1e3, ""),
  )  # fmt: skip
  lines, _ = lines_of(summary)
  assert lines["delta"].tolist() == [4096, 8192]
  assert lines["linear_attention"].tolist() == [8320]


def test_mixers_that_take_turns_have_fields_of_their_own():
  models = [f"delta:num_heads={k}+delta:num_heads={j}" for j in (4, 8) for k in (1, 2, 4)]
  summary = run_of(
    "--tasks=mqar", f"--models={','.join(models)}", n_of=lambda _: (1e3, "")
  )
  lines, _ = lines_of(summary)
  names = [f"delta+delta, num_heads of mixer 2={j}" for j in (4, 8)]
  assert {name: len(places) for name, places in lines.items()} == dict.fromkeys(names, 3)


def test_what_has_no_size_is_named_beside_a_picture_of_sizes():
  own = f"{__name__}:Silent"
  summary = run_of(
    "--tasks=mqar", f"--models={own},delta,delta:num_heads=2", n_of=lambda _: (1e3, "")
  )
  lines, axis = lines_of(summary)
  assert list(lines) == ["delta"]
  assert f"without {own}" in axis.get_xlabel().replace("\n", " ")


def test_a_difficulty_has_its_tick_however_many_series_stand_beside_it():
  n_of = {2: (300.0, ""), 4: (100.0, "")}
  summary = run_of(
    "--tasks=mqar", "--num_pairs=2,4", f"--models={','.join(MIXERS)}",
    n_of=lambda cell: (
      n_of[cell.coordinates["num_pairs"]]
      if (cell.coordinates["num_pairs"] == 2) == (cell.coordinates["model"] == "gru")
      else None
    ),
  )  # fmt: skip
  (axis,) = pictures.draw(summary).axes
  low, high = axis.get_xlim()
  assert low <= 2 < 4 <= high


def test_models_that_differ_in_something_else_are_no_line():
  summary = run_of(
    "--tasks=mqar", "--models=min_gru,delta", "--weight_decay=0,0.1",
    n_of=lambda _: (100.0, ""),
  )  # fmt: skip
  labels = [text.get_text() for text in pictures.draw(summary).axes[0].get_yticklabels()]
  assert sorted(labels) == [
    f"{of}, weight_decay={decay}" for of in ("delta", "min_gru") for decay in ("0", "0.1")
  ]


def test_a_difficulty_may_have_the_prefix_of_tasks():
  summary = run_of(
    "--tasks=mqar", "--models=delta", "--task.num_pairs=2,4", n_of=lambda _: (100.0, "")
  )
  assert [cell["difficulty"] for cell in summary["matrix"]] == [
    {"num_pairs": 2}, {"num_pairs": 4},
  ]  # fmt: skip
  assert {cell["model"] for cell in summary["matrix"]} == {"delta"}


def test_no_text_of_a_matrix_leaves_it():
  model = "tests.test_suite:Sums"
  summary = run_of(
    "--tasks=mqar", f"--models={model},delta", n_of=lambda _: (123_456.0, "more than")
  )
  canvas = FigureCanvasAgg(pictures.draw(summary))
  canvas.draw()
  pixels = np.asarray(canvas.buffer_rgba())
  for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
    assert np.all(edge == 255)


def test_tasks_of_one_name_that_differ_in_a_field_are_told_apart():
  """As where runs of other fields stand beside one another."""
  parts = [
    cells_of(f"--tasks={task}", "--models=delta,attention", "--learning_rates=1e-3")
    for task in ("mqar:num_pairs=2", "mqar")
  ]
  every = [(cell.coordinates, cell.trial.task) for cells in parts for cell in cells]
  found = [matrix.labels(*own, every)["task"] for own in every]
  assert found == ["mqar, num_pairs=2"] * 2 + ["mqar, num_pairs=4"] * 2


def test_tasks_of_other_lengths_are_not_said_to_differ_in_it():
  summary = run_of(
    "--tasks=mqar,dyck:length=8", "--models=delta", n_of=lambda _: (100.0, "")
  )
  assert [cell["task"] for cell in summary["matrix"]] == ["mqar", "dyck"]


def test_positions_are_learned_for_softmax_attention_alone():
  models = "attention:num_heads=2,delta,delta + attention"
  cells = cells_of("--tasks=dyck", f"--models={models}", "--learning_rates=1e-3")
  assert [cell.trial.model.positions for cell in cells] == ["learned", "none", "learned"]
  cells = cells_of("--tasks=dyck", "--models=delta", "--positions=sinusoidal")
  assert {cell.trial.model.positions for cell in cells} == {"sinusoidal"}


def test_mixers_take_turns():
  model = "base_convolution:size=2+based:feature_dim=4"
  (cell,) = cells_of("--tasks=dyck", f"--models={model}", "--learning_rates=1e-3")
  tokens = np.zeros((1, 8), int)
  variables = jax.eval_shape(cell.trial.model.init, jax.random.key(0), tokens)
  assert variables["params"]["mixer_0"]["convolve"]["kernel"].shape == (2, 64)
  assert variables["params"]["mixer_1"]["query"]["kernel"].shape == (64, 4)
  leaks = f"delta+{__name__}:Leaks"
  with pytest.raises(InvalidSetting, match="Leaks"):
    cells_of("--tasks=dyck", f"--models={leaks}", "--learning_rates=1e-3")


FIRST = [(3e-4, 0), (3e-3, 0), (3e-2, 0)]


@pytest.mark.parametrize(
  ("best", "rounds"),
  [
    (3e-3, [FIRST, [(3e-3, 1)], [(1e-3, 0), (1e-2, 0)], [(1e-3, 1), (1e-2, 1)]]),
    # Of the first three 3e-3 is the nearest. From 1e-3 on all are around it already.
    (1e-3, [FIRST, [(3e-4, 1), (3e-3, 1)], [(1e-3, 0), (1e-2, 0)], [(1e-3, 1)]]),
    # Where none of the first reached, the others follow.
    (1e-1, [FIRST, [(1e-4, 0), (1e-3, 0), (1e-2, 0), (1e-1, 0)], [(1e-1, 1)]]),
    (None, [FIRST, [(1e-4, 0), (1e-3, 0), (1e-2, 0), (1e-1, 0)]]),
  ],
)
def test_every_other_rate_comes_first_and_then_those_next_to_the_best(best, rounds):
  chosen = STUDY.chosen(["--tasks=dyck", "--models=delta", "--num_trials=3"])
  cells = STUDY.cells(chosen)
  search = STUDY.search(cells, chosen)
  of = {
    trial_name(c, k): (c.coordinates["learning_rate"], k) for c in cells for k in range(3)
  }

  def rows(name):
    alone = best == 1e-1 and of[name][0] < 1e-1
    if best is None or alone:
      return [{"samples": 100_000, "outcome": "censored"}]
    decades = abs(np.log10(of[name][0] / (best * 1.01)))
    return [{"samples": int(1000 * 20**decades), "outcome": "reached"}]

  ended, found = {}, []
  while names := search(ended):
    found.append(sorted(of[name] for name in names))
    ended |= {name: rows(name) for name in names}
  third = found.pop() if best else []
  assert found == rounds
  assert {k for _, k in third} <= {2}
  assert {rate for rate, _ in third} == {r for own in rounds for r, k in own if k == 1}


def test_a_task_whose_other_fields_do_not_fit_says_which():
  says = (
    r"tasks: got 'mqar:length=8'.*a num_pairs of its own, .*1 to 2.*not the 4 that mqar"
  )
  with pytest.raises(InvalidSetting, match=says):
    cells_of("--tasks=mqar:length=8", "--models=delta", "--num_pairs=1,2")
  with pytest.raises(InvalidSetting, match=r"num_pairs: got 3"):
    cells_of("--tasks=mqar:length=8:num_pairs=3", "--models=delta")


def test_of_one_rate_there_is_one():
  chosen = STUDY.chosen(["--tasks=dyck", "--models=delta", "--learning_rates=1e-3"])
  assert len(STUDY.search(STUDY.cells(chosen), chosen)({})) == 1


@pytest.mark.parametrize(
  ("name", "says"),
  [
    ("LeaksLater", "output 0 depends on input 1, once its weights have moved"),
    ("LeaksUpwards", "output 0 depends on input 1, once its weights have become larger"),
    ("Wider", r"real numbers \(2, 32, 64\) .*mixer_0 gave float32 \(2, 32, 128\)"),
    ("Turns", r"real numbers \(2, 32, 64\) .*mixer_0 gave complex64 \(2, 32, 64\)"),
    ("Masked", "raised: TypeError: .*missing 1 required positional argument: 'mask'"),
    ("Drops", "draws no random numbers where it is evaluated"),
    ("Loops", "has a gradient .*Reverse-mode differentiation does not work"),
    ("Masks", "has a gradient .*inputs .* but got bool"),
    ("Asks", r"raised: TracerBoolConversionError.* in test_suite.py, line \d+\)"),
    ("Reads", r"raised: JSONDecodeError: .* in test_suite.py, line \d+\)"),
    ("SaysMany", "state_size gives an integer, or None"),
    ("HasSize", r"state_size, if they have it, is a method \(self, length\)"),
    ("Averages", "parameters only .*batch_stats"),
    ("Plain", "a flax.linen module .it made a Plain."),
    ("np", "package.module:factory"),
    ("Nothing", "importing it raised AttributeError: .*no attribute 'Nothing'"),
  ],
)
def test_a_mixer_that_is_none_is_refused_by_name(name, says):
  with pytest.raises(InvalidSetting, match=f"^models: got '{__name__}:{name}'.*{says}"):
    cells_of("--tasks=induction_heads", f"--models={__name__}:{name}")


def test_a_mixer_of_other_types_is_taken():
  assert cells_of("--tasks=induction_heads", f"--models={__name__}:Halves")


def test_a_mixer_is_told_whether_it_learns():
  (cell,) = cells_of("--tasks=mqar", f"--models={__name__}:Told", "--learning_rates=1e-3")
  model, inputs = cell.trial.model, (jnp.ones((1, 8), int), jnp.ones((1, 2), int))
  params = modes.init(model, jax.random.key(0), inputs)["params"]
  without = jax.tree.map(jnp.zeros_like, params["mixer_0"])
  nothing = params | {"mixer_0": without, "mixer_1": without}
  learning = modes.apply(model, params, inputs, key=jax.random.key(1))
  np.testing.assert_array_equal(learning, modes.apply(model, nothing, inputs))
  assert np.any(modes.apply(model, params, inputs) != learning)


def test_a_task_may_ask_everywhere():
  assert cells_of(f"--tasks={__name__}:Everywhere", "--models=min_gru")


@pytest.mark.parametrize(
  ("fields", "says"),
  [
    ("wrong=tokens", r"a task with tokens from 0 to 5 \(these: 1 to 6\)"),
    ("wrong=types", r"integer tokens of shape \(100, 8\) \(these are float32"),
    ("wrong=asked", r"a task with asked from 0 to 7 \(these: 8 to 8\)"),
    ("wrong=shapes", r"integer asked of shape \(100, 1\) \(these .* \(100,\)\)"),
    ("wrong=labels", r"a task with labels from -1 to 5 \(these: 6 to 11\)"),
    ("wrong=silent", "asks for something .all labels are -1"),
    ("wrong=many", r"as many sequences as it is asked for \(100, not 7\)"),
    ("wrong=numbers", "a task that draws with its key.*the same tokens"),
    ("wrong=else", r"it raised: KeyError: 'else' in test_suite.py, line \d+\)"),
    (
      "wrong=traced",
      r"it raised: TracerBoolConversionError.* in test_suite.py, line \d+\)",
    ),
    ("num_answers=1", "a best_constant_error above 0, not 0.*num_answers"),
    ("length=-1", "it raised: ValueError: no such length"),
  ],
)
def test_a_task_that_is_none_is_refused_by_name(fields, says):
  task = f"{__name__}:First"
  assert cells_of(f"--tasks={task}", "--models=min_gru")
  with pytest.raises(InvalidSetting, match=f"^tasks: got '{task}:{fields}'.*{says}"):
    cells_of(f"--tasks={task}:{fields}", "--models=min_gru")


def test_a_task_that_goes_by_the_name_of_another_is_refused():
  says = "^tasks: got '.*Reversed', takes a task with a name of its own: mqar is another"
  with pytest.raises(InvalidSetting, match=says):
    cells_of(f"--tasks={__name__}:Reversed", "--models=min_gru")


def test_what_is_published_stands_for_its_directories(tmp_path):
  for name in ("b", "a", "no run"):
    (tmp_path / name).mkdir()
  for name in ("b", "a"):
    (tmp_path / name / "config.json").write_text("{}")
  (tmp_path / "README.md").write_text("Runs.")
  study = dataclasses.replace(STUDY, recorded={"published:suite": tmp_path})
  assert study.runs_at("published:suite") == [str(tmp_path / "a"), str(tmp_path / "b")]
  assert study.runs_at("runs/mine") == ["runs/mine"]
  with pytest.raises(InvalidSetting, match=r"published:suit'.*own: published:suite$"):
    study.runs_at("published:suit")
  nowhere = dataclasses.replace(STUDY, recorded={"published:suite": tmp_path / "none"})
  with pytest.raises(InvalidSetting, match=r"beside.*published:suite.*come with"):
    nowhere.runs_at("published:suite")


def test_what_is_published_is_of_the_tasks_in_the_directory(tmp_path):
  for task in ("dyck", "word_problem_S3"):
    (tmp_path / task).symlink_to(STUDY.recorded["published:suite"] / task)
  study = dataclasses.replace(STUDY, recorded={"published:suite": tmp_path})

  def shown(tasks, stored=None):
    flags = [f"--flagfile={ROOT}/experiments/flags/suite.cfg", f"--tasks={tasks}"]
    chosen = study.chosen([*flags, "--models=min_gru:state_dim=32"])
    call = StudyCall(study, chosen, paths=["published:suite"])
    request = call.request(stored and {"settings": stored})
    found = {own for part in call._others for own in tasks_of(part.cells)}
    return found, request.settings

  both, there = shown("dyck,k_hop")
  assert both == {"dyck"}
  # A task by its name, not by the text that stands for it.
  assert shown("word_problem_S5:group=S3")[0] == {"word_problem_S3"}
  for other in ("k_hop", "word_problem_S3:group=S5"):
    says = "takes tasks of which it has trials: dyck, word_problem_S3$"
    with pytest.raises(InvalidSetting, match=f"'published:suite of .*', {says}"):
      shown(other)
  # What stands in the directory counts, too.
  assert shown("k_hop", there)[0] == {"dyck"}


def test_a_mixer_for_short_sequences_is_tried_on_such():
  model = "--models=hyena:length=6"
  assert cells_of("--tasks=memorisation:length=6", model)
  with pytest.raises(InvalidSetting, match="at most 6 tokens"):
    cells_of("--tasks=dyck", model)


def test_a_mixer_is_tried_on_sequences_as_long_as_the_tasks():
  model = f"--models={__name__}:Chunks"
  assert cells_of("--tasks=memorisation:length=16", model)
  for longer in ("--tasks=induction_heads", "--tasks=memorisation,dyck"):
    with pytest.raises(
      InvalidSetting, match=r"Chunks', .* output 16 depends on input 17"
    ):
      cells_of(longer, model)
  with pytest.raises(InvalidSetting, match="output 16 depends on input 17"):
    cells_of("--tasks=memorisation", "--length=16,20", model)


@pytest.mark.parametrize(
  "name", ["suite", "suite_pairs", "suite_states", "suite_zoology", "suite_quick"]
)
def test_presets_say_what_they_are(name):
  check_preset_says_what_it_is(ROOT / f"experiments/flags/{name}.cfg")


@pytest.mark.slow
def test_presets_of_pictures_have_the_sizes_that_they_say():
  pairs, states = (
    cells_of(f"--flagfile={ROOT}/experiments/flags/suite_{name}.cfg")
    for name in ("pairs", "states")
  )
  assert {cell.trial.task.num_pairs for cell in pairs} == {2, 4, 8, 16}
  layers, found = 2, {}
  for cell in (*pairs, *states):
    model = cell.coordinates["model"].partition(":")[0]
    if model != "attention":
      size = matrix.sizes(cell.trial)["memory"] // layers
      found.setdefault(model, set()).add(size)
  assert found == {
    "linear_attention": {4160, 1088, 320},
    "delta": {4096, 1024, 256},
    "gla": {2048, 512, 128},
    "mamba2": {8192, 2048, 512},
  }


@pytest.mark.slow
def test_a_run_leaves_a_matrix_and_others_stand_beside_it(tmp_path):
  settings = {
    "tasks": "in_context_recall:length=8:vocabulary=6",
    "models": ["attention", "min_gru"],
    "learning_rates": 1e-2,
    "num_trials": 2,
    "max_samples": 20_000,
    "width": 16,
  }
  sepfx.run(STUDY, settings, directory=tmp_path / "run", progress=False)
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  assert [cell["model"] for cell in summary["matrix"]] == ["attention", "min_gru"]
  assert (tmp_path / "run/figure.png").stat().st_size > 0
  other = {"tasks": "memorisation:length=8", "max_samples": 640}
  sepfx.run(STUDY, {**settings, **other}, directory=tmp_path / "other", progress=False)
  beside = dataclasses.replace(STUDY, recorded={"published:suite": tmp_path})
  own = {**settings, "models": f"{__name__}:Sums", "width": 8, "max_samples": 5_000}

  def matrix_of(own):
    path = tmp_path.with_name("own")
    sepfx.run(beside, own, directory=path, beside="published:suite", progress=False)
    return json.loads((path / "summary.json").read_text())["matrix"]

  cells = matrix_of(own)
  assert {cell["task"] for cell in cells} == {"in_context_recall"}
  models = [cell["model"] for cell in cells]
  assert models == [
    f"{__name__}:Sums, width=8",
    "attention, width=16",
    "min_gru, width=16",
  ]
  assert {cell["reference"] for cell in cells} == {"attention, width=16"}
  # Another task in the same directory: both stand there, and so do both beside them.
  cells = matrix_of({**own, "tasks": "memorisation:length=8"})
  of_others = [cell["task"] for cell in cells if "Sums" not in cell["model"]]
  assert sorted({*of_others}) == ["in_context_recall", "memorisation"]

"""Lanes against single trials, and a trial against every way of running it."""

import concurrent.futures
import dataclasses
import itertools
import threading

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from sepfx import InvalidSetting, measure
from sepfx.ensembles import Lanes, Watcher, compiling, grid, leaves_of, programs, run
from sepfx.ensembles.advance import CONTINUE, RESUME, START
from sepfx.ensembles.cells import Cell
from sepfx.errors import OutOfMemory
from sepfx.models import GRU
from sepfx.tasks import QSTR, shared
from sepfx.training import AdamW, Online, with_setting
from tests import small


def results(cell, **settings):
  return {r.trial: r for r in run([cell], seed=3, **settings)}


def cell_of(model, name):
  protocol = dataclasses.replace(small.PROTOCOL, max_samples=16 * 5 * 15)
  trial = dataclasses.replace(
    small.TRIAL, model=model, protocol=protocol, model_name=name
  )
  return Cell(trial)


def leaves(trial, num_lanes):
  """The leaves of lanes that all run this trial."""
  return tuple(np.stack([leaf] * num_lanes) for leaf in leaves_of(trial))


@pytest.mark.bits
@pytest.mark.parametrize("model", [small.MODEL, GRU(units=8)], ids=["transformer", "gru"])
def test_a_trial_is_the_same_bits_in_any_ensemble(model):
  cell = cell_of(model, "m")
  one_device = jax.devices()[:1]
  alone = results(cell, num_trials=4, lanes=1, devices=one_device)
  among = results(cell, num_trials=5, lanes=8, devices=one_device)
  for k in range(4):
    assert alone[k].rows == among[k].rows
    np.testing.assert_array_equal(alone[k].curve, among[k].curve)


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [True, False])
def test_lanes_are_a_python_loop_over_trials(mapped):
  # Five trials in four lanes on two devices: one lane is refilled, others run dry.
  cell = Cell(small.TRIAL)
  seeds = cell.seeds(3, 5)
  key_data = tuple(np.asarray(jax.random.key_data(keys)) for keys in seeds)
  lanes = Lanes(cell.trial, jax.devices(), 2, mapped=mapped)
  assert lanes.num_lanes == 4
  in_lane, waiting, ended = [0, 1, 2, 3], 4, {}
  refill = np.full(4, START)
  while any(k >= 0 for k in in_lane):
    own = jax.tree.map(lambda a, k=tuple(in_lane): a[np.array(k)], key_data)
    steps = 3 * lanes.quantum + 10
    dispatched = lanes.advance(own, leaves(cell.trial, 4), refill, steps)
    report = jax.device_get(dispatched)
    refill = np.full(4, CONTINUE)
    for lane, k in enumerate(in_lane):
      if k >= 0 and not report.active[lane]:
        ended[k] = jax.tree.map(lambda field, lane=lane: field[lane], report)
        in_lane[lane] = waiting if waiting < 5 else -1
        refill[lane] = START if waiting < 5 else CONTINUE
        waiting += 1
  assert sorted(ended) == list(range(5))
  for k, report in ended.items():
    state = small.run_to_end(cell.trial, jax.tree.map(lambda a, k=k: a[k], seeds))
    assert cell.trial.outcomes(report) == cell.trial.outcomes(state)
    found, expected = cell.trial.curve(report), cell.trial.curve(state)
    # Estimates are of other prompts where lanes are batched.
    same = found["exact"] & expected["exact"] if not mapped else np.full(len(found), True)
    assert np.mean(same) > 0.3
    np.testing.assert_allclose(found["loss"][same], expected["loss"][same], rtol=1e-4)


@pytest.mark.parametrize("mapped", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_lanes_begin_go_on_and_take_up_trials(mapped):
  """Each as if it ran alone: two lanes of two rates, refilled in every way."""
  protocol = dataclasses.replace(
    small.PROTOCOL, optimizer=AdamW(5e-3), num_test=20, max_samples=16 * 5 * 4
  )
  slow = protocol.trial(small.TASK, small.TASK, small.Linear(), "m")
  fast = with_setting(slow, "learning_rate", 0.05)
  seeds = Cell(slow).seeds(3, 3)
  runs = {0: slow, 1: fast, 2: slow}
  alone = {
    k: small.run_to_end(trial, jax.tree.map(lambda a, k=k: a[k], seeds))
    for k, trial in runs.items()
  }
  lanes = Lanes(slow, jax.devices()[:1], 2, mapped=mapped)

  def advance(trials, refill, steps):
    own = tuple(np.asarray(jax.random.key_data(keys))[np.array(trials)] for keys in seeds)
    columns = zip(*(leaves_of(runs[k]) for k in trials), strict=True)
    leaves = tuple(np.stack(column) for column in columns)
    report = lanes.advance(own, leaves, np.array(refill), steps)
    return jax.device_get(report)

  report = advance((0, 1), (START, CONTINUE), 5)
  assert report.active.tolist() == [True, False]  # the second lane is idle
  assert report.step.tolist() == [5, 0]
  report = advance((0, 1), (CONTINUE, START), 8 if mapped else 10)
  assert report.step.tolist() == ([13, 8] if mapped else [15, 10])
  half_way = jax.tree.map(np.asarray, lanes.states)
  chex.assert_trees_all_equal(
    lanes.take(1), jax.tree.map(lambda a: a[1], half_way.params)
  )
  # Trial 1 moves to the first lane; the second goes on with what is there, then begins.
  lanes.put({0: jax.tree.map(lambda a: a[1], half_way)})
  report = advance((1, 1), (RESUME, CONTINUE), 1000)
  for lane in range(2):
    own = jax.tree.map(lambda a, lane=lane: a[lane], report)
    assert fast.outcomes(own) == fast.outcomes(alone[1])
    np.testing.assert_allclose(own.curve.loss, alone[1].curve.loss, rtol=1e-4)
  again = advance((1, 2), (CONTINUE, START), 1000)
  first, second = (jax.tree.map(lambda a, k=k: a[k], again) for k in range(2))
  chex.assert_trees_all_equal(first, jax.tree.map(lambda a: a[0], report))
  assert slow.outcomes(second) == slow.outcomes(alone[2])
  np.testing.assert_allclose(second.curve.loss, alone[2].curve.loss, rtol=1e-4)
  assert int(second.checks) == 4
  lanes.clear()
  blank = advance((0, 0), (CONTINUE, CONTINUE), 5)
  assert not blank.active.any()
  assert not blank.step.any()


@dataclasses.dataclass(frozen=True)
class Poisoned(QSTR):
  """Plants NaN in the trial whose task key ends in this word."""

  poison: int = 0

  def init(self, key):
    planted = super().init(key)
    bad = jax.random.key_data(key)[-1] == np.uint32(self.poison)
    return jax.tree.map(lambda a: jnp.where(bad, jnp.nan, a), planted)


@pytest.mark.slow
@pytest.mark.parametrize("mapped", [True, False])
def test_a_trial_of_nan_leaves_its_neighbours_alone(mapped):
  seeds = Cell(small.TRIAL).seeds(3, 4)
  key_data = tuple(np.asarray(jax.random.key_data(keys)) for keys in seeds)
  reports = []
  for poison in (0, int(key_data[1][2, -1])):  # nobody's; trial 2's
    task = Poisoned(length=3, token_dim=2, poison=poison)
    trial = dataclasses.replace(
      small.TRIAL, task=task, test_task=task, model=small.Linear()
    )
    lanes = Lanes(trial, jax.devices()[:1], 4, mapped=mapped)
    own = leaves(trial, 4)
    reports.append(jax.device_get(lanes.advance(key_data, own, np.full(4, START), 40)))
  healthy, poisoned = reports
  assert not healthy.diverged_at.any()
  assert poisoned.diverged_at[2] == 1
  others = [0, 1, 3]
  chex.assert_trees_all_equal(
    *(jax.tree.map(lambda a: a[others], report) for report in (healthy, poisoned))
  )


@pytest.mark.faults
def test_lanes_are_halved_until_memory_suffices(monkeypatch):
  cell = cell_of(small.Linear(), "m")
  one_device = jax.devices()[:1]
  plain = results(cell, num_trials=5, lanes=2, devices=one_device)
  made, ran = [], []

  class Tight(Lanes):
    """Fails as XLA does: to be made with more than 4 lanes, then to run with 4."""

    def __init__(self, trial, devices, lanes_per_device, **settings):
      made.append(lanes_per_device)
      if lanes_per_device > 4:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
      super().__init__(trial, devices, lanes_per_device, **settings)

    def advance(self, *arguments):
      ran.append(self.num_lanes)
      if self.num_lanes == 4 and ran.count(4) == 3:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
      return super().advance(*arguments)

  monkeypatch.setattr(compiling, "Lanes", Tight)
  with pytest.warns(UserWarning, match="out of memory with . lanes per device: going on"):
    found = results(cell, num_trials=5, lanes=8, devices=one_device)
  assert made == [8, 4, 2]
  assert set(ran[3:]) == {2}
  assert {k: result.rows for k, result in found.items()} == {
    k: result.rows for k, result in plain.items()
  }


@pytest.mark.parametrize("when", ["compiling", "running"])
@pytest.mark.parametrize(
  "error",
  [jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 3 GiB"), MemoryError("3 GiB")],
  ids=["device", "host"],
)
def test_what_does_not_fit_is_named(monkeypatch, when, error):
  class Full(compiling.Lanes):
    def __init__(self, *arguments, **keywords):
      if when == "compiling":
        raise error
      super().__init__(*arguments, **keywords)

    def advance(self, *arguments):
      raise error

  monkeypatch.setattr(compiling, "Lanes", Full)
  message = r"out of memory: qstr: m length=3 with 1 lane per device \(.*3 GiB\)"
  with pytest.raises(OutOfMemory, match=message):
    results(cell_of(small.Linear(), "m"), num_trials=2, lanes=1)


class AtOnce(concurrent.futures.ThreadPoolExecutor):
  """Compiles when it is asked to, so that no trial ends before the next cell is ready."""

  def submit(self, function, *arguments):
    future = super().submit(function, *arguments)
    concurrent.futures.wait([future])
    return future


def test_a_program_of_an_earlier_round_is_not_announced(monkeypatch):
  announced = []

  class Told(Watcher):
    def compiling(self, cell):
      announced.append(cell.name)

  def measured(**settings):
    settings |= {"seed": 0, "num_trials": 1, "watchers": [Told()]}
    return len(list(run([Cell(small.TRIAL)], **settings)))

  known = {}
  monkeypatch.setattr(compiling, "_POLL_SECONDS", 0.0)
  assert measured(programs=known) == 1
  assert announced == [Cell(small.TRIAL).name]
  monkeypatch.setattr(compiling, "ThreadPoolExecutor", AtOnce)
  assert measured(programs=known) == 1
  assert len(announced) == 1


@pytest.mark.slow
def test_the_last_trials_of_a_cell_run_beside_the_next_cell(monkeypatch):
  # Three trials on two devices: when one is left, the other device goes on.
  monkeypatch.setattr(compiling, "ThreadPoolExecutor", AtOnce)
  monkeypatch.setattr(programs, "_DISPATCH_SECONDS", (0.0, 0.0))  # one step each
  seen = []

  class Order(Watcher):
    def advanced(self, cells, steps):
      (name,) = {cell.coordinates["model"] for cell in cells if cell}
      seen.append((name, np.flatnonzero(steps).tolist()))

    def ended(self, result):
      seen.append(("ended", result.name))

  protocol = dataclasses.replace(
    small.PROTOCOL, thresholds=(1e-3,), max_samples=16 * 5 * 6
  )
  cells = []
  for name in ("a", "b"):  # of two structures, since the name is part of it
    cell = cell_of(small.Linear(), name)
    cells.append(Cell(dataclasses.replace(cell.trial, protocol=protocol)))
  ended = [
    result.name
    for result in run(cells, seed=0, num_trials=3, watchers=[Order()], lanes=1)
  ]
  assert len(ended) == len(set(ended)) == 6
  first_b = next(k for k, (what, _) in enumerate(seen) if what == "b")
  last_a = max(k for k, (what, _) in enumerate(seen) if what == "a")
  assert first_b < last_a
  for (what, lanes), (other, others) in itertools.pairwise(seen):
    if {what, other} == {"a", "b"} and what == "a":
      assert not set(lanes) & set(others)


def test_seeds_depend_on_seed_cell_and_index_alone():
  cell = cell_of(small.MODEL, "m")

  def data(seeds):
    return np.asarray(jax.random.key_data(seeds.trial)), np.asarray(
      jax.random.key_data(seeds.task)
    )

  few, many = data(cell.seeds(0, 3)), data(cell.seeds(0, 7))
  for a, b in zip(few, many, strict=True):
    np.testing.assert_array_equal(a, b[:3])
    assert len({tuple(key) for key in b}) == 7
  other = cell_of(small.MODEL, "n")
  other_model = data(other.seeds(0, 3))
  other_seed = data(cell.seeds(1, 3))
  for another in (other_model, other_seed):
    assert not np.any(np.all(another[0] == few[0], axis=1))
  shared_draw = dataclasses.replace(cell, task_draw="shared")
  _, planted = data(shared_draw.seeds(0, 4))
  assert len({tuple(key) for key in planted}) == 1
  # Fields of a model, and axes, are not in the key.
  wider = cell_of(small.MODEL, "m:width=30")
  for paired in (wider, dataclasses.replace(cell, axes={"noise": 0.1})):
    np.testing.assert_array_equal(data(paired.seeds(0, 3))[0], few[0])
  _, elsewhere = data(dataclasses.replace(other, task_draw="shared").seeds(0, 4))
  np.testing.assert_array_equal(planted, elsewhere)


@pytest.mark.slow
def test_measure_needs_neither_flags_nor_files():
  protocol = dataclasses.replace(
    small.PROTOCOL, thresholds=(0.5, 0.9), max_samples=16 * 5 * 6
  )
  records = measure(
    small.TASK, [small.Linear()], [4, 3], protocol, num_trials=2, task_draw="shared",
    test_task=dataclasses.replace(small.TASK, indices=shared),
  )  # fmt: skip
  frame = pd.DataFrame(records.table)
  assert list(frame.columns) == [
    "task", "model", "length", "trial", "threshold", "samples", "outcome",
  ]  # fmt: skip
  assert frame["length"].tolist() == [3] * 4 + [4] * 4
  assert frame["trial"].tolist() == [0, 0, 1, 1] * 2
  assert frame["threshold"].tolist() == [0.9, 0.5] * 4
  assert set(frame["model"]) == {"Linear"}
  # A token-wise linear model cannot go below 0.5.
  at_half = frame[frame["threshold"] == 0.5]
  assert set(at_half["outcome"]) == {"censored"}
  assert set(at_half["samples"]) == {16 * 5 * 6}


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"models": []}, "models: got"),
    ({"lengths": []}, "lengths: got"),
    ({"lengths": [1, 4]}, "length: got 1"),
    ({"task_draw": "once"}, "task_draw: got 'once'"),
    ({"models": "transformer:num_heads=0"}, "num_heads"),
    ({"protocol": Online(thresholds=(0.5, 1.0))}, "thresholds: got 1.0, takes .*best"),
    ({"models": [small.Linear(), small.Linear()]}, "model: got 'Linear', takes models"),
    ({"models": [small.Linear(name="a/b")]}, "model: got .*, takes .*slash"),
    ({"axes": {"code_dim": []}}, "code_dim: got .*, takes at least one value"),
  ],
)
def test_bad_grids_are_refused(settings, message):
  settings = {"models": ["transformer"], "lengths": [4], **settings}
  with pytest.raises(InvalidSetting, match=message):
    measure(small.TASK, **settings)


def test_a_grid_is_a_product_of_axes():
  def build(length, noise):
    task = dataclasses.replace(small.TASK, length=length)
    return small.PROTOCOL.trial(task, task, small.Linear(), "m")

  cells = grid(build, {"length": [3, 4], "noise": [0, 0.5]})
  assert [cell.name for cell in cells] == [
    f"task=qstr/model=m/length={length}/noise={noise}"
    for length in (3, 4)
    for noise in ("0", "0.5")
  ]


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"seed": -1}, "seed: got -1"),
    ({"seed": 2**32}, "seed: got"),
    ({"num_trials": 0}, "num_trials: got 0"),
    ({"lanes": -1}, "lanes: got -1"),
  ],
)
def test_bad_runs_are_refused(settings, message):
  settings = {"seed": 0, "num_trials": 1, **settings}
  with pytest.raises(InvalidSetting, match=message):
    run([Cell(small.TRIAL)], **settings)


# Five steps, of which the last one ends it.
SHORT = dataclasses.replace(
  small.with_protocol(small.TRIAL, max_samples=16 * 5, thresholds=(1e-3,)),
  model=small.Linear(),
)
ONE_LANE = {"lanes": 1, "devices": jax.devices()[:1]}


def test_results_are_handed_out_while_the_next_dispatch_runs(monkeypatch):
  """Also where a device keeps the thread that starts a dispatch, as GPUs may."""
  told, waited = threading.Event(), []
  advance = Lanes.advance

  def dispatch(self, key_data, leaves, refill, num_steps):
    if refill[0] == START and not waited:
      waited.append(None)  # the first trial begins
    elif refill[0] == START:
      waited.append(told.wait(60))
    return advance(self, key_data, leaves, refill, num_steps)

  class Told(Watcher):
    def ended(self, result):
      told.set()

  monkeypatch.setattr(Lanes, "advance", dispatch)
  results(Cell(SHORT), num_trials=2, watchers=[Told()], **ONE_LANE)
  assert waited == [None, True]


def test_what_ended_is_handed_out_before_a_checkpoint_is_saved(monkeypatch):
  """It is in none: a run that is killed then would lose it."""
  happened = []

  class Keeper:
    def restore(self, cells):
      return {}

    def due(self):
      return True

    def save(self, in_progress):
      happened.append([trial for group in in_progress for _, trial in group.trials])

  class Told(Watcher):
    def ended(self, result):
      happened.append(result.trial)

  monkeypatch.setattr(programs, "_DISPATCH_SECONDS", (0.0, 0.0))  # one step each
  settings = {**ONE_LANE, "keeper": Keeper(), "watchers": [Told()]}
  results(Cell(SHORT), num_trials=2, **settings)
  assert happened[-11:] == [*[[0]] * 4, 0, [], *[[1]] * 4, 1]


def test_what_happens_is_told_in_its_order(monkeypatch):
  """And curves are fetched only where a trial ended."""
  happened = []
  fetch = jax.device_get

  class Told(Watcher):
    def started(self, cell, trial, step):
      happened.append(f"{trial} started")

    def advanced(self, cells, steps):
      happened.append(int(steps.sum()))

    def ended(self, result):
      happened.append(f"{result.trial} ended")

  def fetched(tree):
    if hasattr(tree, "loss"):
      happened.append("curves")
    return fetch(tree)

  monkeypatch.setattr(jax, "device_get", fetched)
  monkeypatch.setattr(programs, "_DISPATCH_SECONDS", (0.0, 0.0))  # one step each
  results(Cell(SHORT), num_trials=2, watchers=[Told()], **ONE_LANE)
  assert happened == [
    "0 started", 1, 1, 1, 1, "curves", 1, "0 ended",
    "1 started", 1, 1, 1, 1, "curves", 1, "1 ended",
  ]  # fmt: skip


@pytest.mark.parametrize("error", ["RESOURCE_EXHAUSTED: 3 GiB", "INTERNAL: a fault"])
def test_what_ended_before_a_failure_is_handed_out(monkeypatch, error):
  advance, told = Lanes.advance, []

  def dispatch(self, key_data, leaves, refill, num_steps):
    if refill[0] == START and self._slots is not None:  # the second trial's first
      raise jax.errors.JaxRuntimeError(error)
    return advance(self, key_data, leaves, refill, num_steps)

  class Told(Watcher):
    def ended(self, result):
      told.append(result.trial)

  monkeypatch.setattr(Lanes, "advance", dispatch)
  with pytest.raises((OutOfMemory, jax.errors.JaxRuntimeError)):
    results(Cell(SHORT), num_trials=2, watchers=[Told()], **ONE_LANE)
  assert told == [0]

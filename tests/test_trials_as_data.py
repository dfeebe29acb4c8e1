"""A trial's settings are data: the same bits alone and among others that differ."""

import dataclasses

import jax
import numpy as np
import pytest

import sepfx
from sepfx import InvalidSetting
from sepfx.ensembles import grid, run
from sepfx.models import GRU, FeedForward, Transformer
from sepfx.tasks import QSTR, SparseBoolean
from sepfx.training import AdamW, with_setting
from tests import small

RATES = (1e-3, 5e-3, 3e-2)
MODELS = {
  "transformer": Transformer(width=20),
  "ffn": FeedForward((20,)),
  "gru": GRU(units=8),
}
PROTOCOL = sepfx.Online(
  thresholds=(0.9, 0.7), batch_size=16, check_every=5, num_test=300, max_samples=16 * 60
)


def cells(model, rates):
  base = PROTOCOL.trial(small.TASK, small.TASK, model, "m")
  return grid(
    lambda learning_rate: with_setting(base, "learning_rate", learning_rate),
    {"learning_rate": rates},
  )


def results(own, **settings):
  found = run(own, seed=3, devices=jax.devices()[:1], **settings)
  return {result.name: result for result in found}


# Not `slow`: those are compiled in a way that gives other bits for other widths.
@pytest.mark.bits
@pytest.mark.parametrize("name", MODELS)
def test_a_trial_alone_and_in_a_sweep_is_the_same_bits(name):
  """Three rates in two lanes against each rate's trial in one lane."""
  sweep = results(cells(MODELS[name], RATES), num_trials=2, lanes=2)
  assert len(sweep) == 6
  seen = set()
  for rate in RATES:
    alone = results(cells(MODELS[name], [rate]), num_trials=1, lanes=1)
    for key, result in alone.items():
      assert result.rows == sweep[key].rows
      np.testing.assert_array_equal(result.curve, sweep[key].curve)
      seen.add(result.curve["loss"].tobytes())
  assert len(seen) == 3  # the rates do something


@pytest.mark.slow
def test_kept_weights_and_probes_change_nothing():
  own = cells(MODELS["ffn"], RATES[:2])
  probe = sepfx.probes.combined("norms", [cell.trial for cell in own])
  plain = results(own, num_trials=3, lanes=2)
  probed = results(own, num_trials=3, lanes=2, probe=probe, keep_weights=True)
  for name, result in plain.items():
    assert result.rows == probed[name].rows
    np.testing.assert_array_equal(result.curve, probed[name].curve)
    assert result.probes is None
    squares = sum(np.sum(a**2) for a in jax.tree.leaves(probed[name].params))
    np.testing.assert_allclose(probed[name].probes["norm"] ** 2, squares, rtol=1e-5)


def test_cells_are_told_apart_by_axes_and_paired_by_keys():
  first, second = cells(MODELS["ffn"], [1e-3, 0.5])
  assert first.name == "task=qstr/model=m/length=3/learning_rate=0.001"
  assert second.name.endswith("learning_rate=0.5")
  one, two = (jax.random.key_data(cell.seeds(0, 3).trial) for cell in (first, second))
  np.testing.assert_array_equal(one, two)
  assert jax.tree.structure(first.trial) == jax.tree.structure(second.trial)


def test_fields_are_found_by_name():
  trial = PROTOCOL.trial(small.TASK, small.TASK, MODELS["gru"])
  assert with_setting(trial, "weight_decay", 0.5).protocol.optimizer.weight_decay == 0.5
  assert with_setting(trial, "token_dim", 3).test_task.token_dim == 3
  assert with_setting(trial, "units", "4").model.units == 4
  assert with_setting(trial, "l2", 0.1).protocol.l2 == 0.1
  noisy = SparseBoolean(length=5, noise=0.1)
  clean = dataclasses.replace(noisy, noise=0.0)
  apart = sepfx.ERM().trial(noisy, clean, sepfx.models.build("gru", noisy))
  assert with_setting(apart, "noise", 0.2).test_task.noise == 0.0
  inside = with_setting(apart, "units", 4).model
  assert inside.model.units == 4


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("unit", 4, "takes a field of the task qstr, the model GRU:units=8"),
    ("units", 4.5, "units: got '4.5', takes an integer"),
    ("units", True, "units: got 'True', takes an integer"),
    ("task.units", 4, "takes a field of the task qstr"),
    ("nothing.units", 4, "takes a prefix of task, model, protocol, optimizer"),
    ("learning_rate", -1.0, "learning_rate: got -1.0, takes a positive number"),
  ],
)
def test_what_is_no_setting_is_refused(name, value, message):
  trial = PROTOCOL.trial(small.TASK, small.TASK, MODELS["gru"])
  with pytest.raises(InvalidSetting, match=message):
    with_setting(trial, name, value)


@dataclasses.dataclass(frozen=True)
class Scaled(QSTR):
  """A task with a field that the protocol has, too."""

  batch_size: int = 1


def test_a_field_of_two_needs_a_prefix():
  task = Scaled(length=3, token_dim=2)
  trial = PROTOCOL.trial(task, task, MODELS["ffn"])
  with pytest.raises(InvalidSetting, match=r"task\.batch_size, protocol\.batch_size"):
    with_setting(trial, "batch_size", 8)
  assert with_setting(trial, "protocol.batch_size", 8).protocol.batch_size == 8
  assert with_setting(trial, "task.batch_size", 8).task.batch_size == 8


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"axes": {"learning_rate": []}}, "learning_rate: got .*, takes at least one"),
    ({"axes": {"learning_rate": [1e-3, 0.001]}}, "takes each value once"),
    ({"axes": {"learning_rate": ["fast"]}}, "learning_rate: got 'fast', takes a number"),
    ({"axes": {"rate": [1.0]}}, "rate: got 1.0, takes a field of"),
    ({"models": [Transformer]}, "did you forget \\(\\) after Transformer"),
    ({"models": [GRU(units=2), GRU(units=2)]}, "give one a name, as in Model\\(name="),
    (
      {"models": ["transformer:heads=2"]},
      "takes the fields num_heads, .* of transformer",
    ),
    ({"models": ["transformer:num_heads=two"]}, "takes an integer"),
    ({"models": ["transformer:scheme=jax"]}, "takes torch or flax"),
    ({"task": QSTR}, "did you forget \\(\\) after QSTR"),
    ({"protocol": sepfx.Online}, "did you forget \\(\\) after Online"),
  ],
)
def test_bad_input_is_refused_before_anything_compiles(settings, message):
  settings = {
    "task": small.TASK, "models": "transformer", "lengths": 3, **settings,
  }  # fmt: skip
  with pytest.raises(InvalidSetting, match=message):
    sepfx.measure(**settings)


def test_nnx_modules_are_refused_with_a_way_out():
  from flax import nnx

  class Own(nnx.Module):
    pass

  with pytest.raises(InvalidSetting, match=r"flax\.nnx\.bridge\.to_linen\(Own, "):
    sepfx.measure(small.TASK, [Own()], 3)


@pytest.mark.slow
def test_one_value_stands_for_a_list():
  found = sepfx.measure(
    small.TASK, GRU(units=2, name="mine"), 3, PROTOCOL, num_trials=1,
    axes={"weight_decay": 0.1},
  )  # fmt: skip
  assert found.table[["model", "length", "weight_decay"]].tolist()[0] == ("mine", 3, 0.1)


def test_rates_may_follow_a_schedule():
  trial = with_setting(
    PROTOCOL.trial(small.TASK, small.TASK, MODELS["ffn"]), "decay_steps", 10
  )
  params = {"w": np.ones(2, np.float32)}
  optimizer = AdamW(0.1, weight_decay=0.0, warmup_steps=2, decay_steps=10)
  state, steps = optimizer.init(params), []
  for _ in range(12):
    step, state = optimizer.update(params, state, params)
    steps.append(-float(step["w"][0]))
  assert steps[0] == 0.0
  assert steps[2] == pytest.approx(0.1, rel=1e-3)
  assert max(steps) == steps[2]
  assert steps[10] == pytest.approx(0.0, abs=1e-6)
  assert trial.protocol.optimizer.decay_steps == 10


def test_a_rate_that_has_risen_stays():
  """Warm-up alone: 0, 1/4, 2/4, 3/4 of the rate, and the rate from there on."""
  params = {"w": np.ones(2, np.float32)}
  optimizer = AdamW(0.1, weight_decay=0.0, warmup_steps=4)
  state, steps = optimizer.init(params), []
  for _ in range(7):
    step, state = optimizer.update(params, state, params)
    steps.append(-float(step["w"][0]))
  np.testing.assert_allclose(
    steps, [0, 0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rtol=1e-3, atol=1e-9
  )

"""What must hold on a GPU or TPU: `pytest -m accelerator -n 0`, in two minutes there.

All of it runs on the first device that JAX finds. On CPUs lanes are batched as they are
on accelerators. There the slow ones are run with other slow tests, the rest by default.
"""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.qstr.constructions.retrieval import retrieval_transformer
from sepfx import precision
from sepfx.ensembles import Cell, Watcher, compiling, run
from sepfx.errors import Interrupted
from sepfx.models import GRU, FeedForward, Transformer
from sepfx.records.checkpoints import Checkpoints
from sepfx.tasks import QSTR
from sepfx.training import Online
from sepfx.training.orders import place_in_order
from tests import plain, small

pytestmark = pytest.mark.accelerator

DEVICES = jax.devices()[:1]
CPU = jax.devices("cpu")[0]
EPSILON = 2.0**-24  # of float32, to nearest
CELL = Cell(
  small.with_protocol(small.TRIAL, max_samples=16 * 5 * 40, thresholds=(0.8, 0.6, 0.4))
)
SEED, LANES = 3, 4


def on_cpu(function):
  """The same function in 64 bits on a CPU."""

  @functools.wraps(function)
  def computed(*arguments):
    with jax.default_device(CPU), jax.enable_x64(True), precision.exact():
      doubles = jax.tree.map(lambda a: np.asarray(a, np.float64), arguments)
      return jax.tree.map(np.asarray, jax.jit(function)(*doubles))

  return computed


# Products.


def products(asked):
  """One large product, and how far each number may be from it: |A| |B|."""
  a, b = (np.asarray(jax.random.normal(key, (512, 512))) for key in small.seeds(1))
  with jax.default_matmul_precision(asked):
    found = np.asarray(jax.jit(jnp.matmul)(a, b), np.float64)
  a, b = a.astype(np.float64), b.astype(np.float64)
  return np.abs(found - a @ b) / (np.abs(a) @ np.abs(b))


def has_tensor_cores():
  """Whether products of float32 may be in TF32: from NVIDIA's compute capability 8."""
  device: Any = DEVICES[0]
  return device.device_kind.startswith("NVIDIA") and float(device.compute_capability) >= 8


def test_products_of_float32_are_float32s():
  """Its rounding grows with the root of 512 terms; the bound is for one after another."""
  assert products("float32").max() < 32 * EPSILON


@pytest.mark.skipif(not has_tensor_cores(), reason="no tensor cores")
def test_products_of_tensorfloat32_are_not():
  """Operands have ten bits after the first one: what a protocol asks for is heard."""
  assert products("tensorfloat32").max() > 256 * EPSILON


# Models.


def feedforward(params, z):
  hidden = jnp.maximum(plain.dense(params["Dense_0"], z.reshape(len(z), -1)), 0)
  return plain.dense(params["Dense_1"], hidden)


TASK = QSTR(length=6)
MODELS = {
  "transformer": (Transformer(width=26), plain.transformer),
  "ffn": (FeedForward((100,)), feedforward),
  "gru": (GRU(units=40), plain.gru),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_trials_loss_and_its_gradient_are_those_of_float64(name):
  """Each written again; within a few roundings of float32, whatever JAX's default is."""
  model, again = MODELS[name]
  trial = Online(num_test=32).trial(TASK, TASK, model)
  seeds = small.seeds(0)
  world = jax.jit(trial.world)(seeds)
  inputs, labels = TASK.encode(world.planted, world.test), world.test.labels
  params = jax.jit(model.init)(seeds.trial, inputs)["params"]

  def loss(params, inputs, labels):
    return jnp.mean((again(params, inputs) - labels) ** 2)

  with jax.default_matmul_precision("bfloat16"):
    found = jax.jit(jax.value_and_grad(lambda own: trial.loss(own, world.test, world)))(
      params
    )
  expected = on_cpu(jax.value_and_grad(loss))(params, inputs, labels)
  for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
    atol = 1e-5 * np.max(np.abs(b)) + 1e-8  # a key's bias has a gradient of zero
    np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@pytest.mark.slow
def test_a_construction_is_exact():
  """Lemma 11: within sqrt(eps), which products in fewer bits are not."""
  task = QSTR(length=20, codes="incoherent", encoding_prefactor=True)
  planted = task.init(jax.random.key(0))
  prompts = task.sample(jax.random.key(1), planted, 200)
  radius = float(jnp.max(jnp.linalg.norm(prompts.tokens, axis=-1)))
  built = retrieval_transformer(task, planted, radius=radius, eps=1e-6)
  with precision.exact():
    inputs = task.encode(planted, prompts)
    found = jax.jit(built.model.apply)({"params": built.params}, inputs)
  off = np.abs(np.asarray(found) - np.asarray(prompts.labels))
  assert off.max() <= math.sqrt(1e-6)


# What is drawn.


def test_samples_are_those_of_a_cpu():
  """Integers to the bit, real numbers within a few roundings."""
  task = QSTR(length=8, sparsity=2, link="relu_teacher")

  def drawn():
    planted = task.init(jax.random.key(0))
    prompts = task.sample(jax.random.key(1), planted, 500)
    return planted, prompts, task.encode(planted, prompts)

  with precision.exact():
    here = jax.jit(drawn)()
    with jax.default_device(CPU):
      there = jax.jit(drawn)()
  assert there[1].tokens.devices() == {CPU}
  np.testing.assert_array_equal(here[1].indices, there[1].indices)
  for a, b in zip(jax.tree.leaves(here), jax.tree.leaves(there), strict=True):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_orders_of_a_fixed_sample_are_the_documented_ones():
  key, m = jax.random.key(5), 37
  order = jax.jit(place_in_order, static_argnums=2)(key, jnp.arange(m), m)
  assert np.asarray(order).tolist() == plain.shuffled(key, m)


# Trials.


@pytest.fixture(scope="module")
def attempt():
  """Runs trials of one cell in four batched lanes of one device; compiles once."""
  compiled = {}

  def results(num_trials, **settings):
    ended = run(
      [CELL], seed=SEED, num_trials=num_trials, lanes=LANES, devices=DEVICES,
      programs=compiled, **settings,
    )  # fmt: skip
    return {result.trial: result for result in ended}

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(compiling, "_are_mapped", lambda devices: False)
    yield results


@pytest.fixture(scope="module")
def five(attempt):
  """The first five of them."""
  return attempt(5)


def assert_same(found, expected):
  """The same rows, and the same bits of all curves."""
  assert sorted(found) == sorted(expected)
  for k, result in found.items():
    assert result.rows == expected[k].rows
    assert result.curve.tobytes() == expected[k].curve.tobytes()


@pytest.mark.slow
def test_batched_lanes_are_a_python_loop_over_trials(five):
  """Losses within 0.1%. A first passage may be one check off, for a last digit."""
  seeds, trial = CELL.seeds(SEED, 5), CELL.trial
  one_check = CELL.trial.progress[1]
  for k, result in five.items():
    state = small.run_to_end(trial, jax.tree.map(lambda a, k=k: a[k], seeds))
    for found, expected in zip(result.outcomes, trial.outcomes(state), strict=True):
      assert found.outcome == expected.outcome
      assert abs(found.samples - expected.samples) <= one_check
    curve = trial.curve(state)
    checks = min(len(curve), len(result.curve))
    found, expected = result.curve[:checks], curve[:checks]
    exact = found["exact"] & expected["exact"]  # estimates are of other prompts
    assert exact.any()
    np.testing.assert_allclose(found["loss"][exact], expected["loss"][exact], rtol=1e-3)


@pytest.mark.slow
def test_a_repeated_run_is_the_same_bits(attempt, five):
  assert_same(attempt(5), five)


@pytest.mark.slow
def test_of_fifty_trials_the_first_five_are_the_same(attempt, five):
  fifty = attempt(50)
  assert_same({k: fifty[k] for k in five}, five)


class Dispatches(Watcher):
  """Counts them."""

  def __init__(self):
    self.number = 0

  def advanced(self, cells, steps):
    self.number += 1


@pytest.mark.slow
def test_a_run_that_was_stopped_goes_on_to_the_same(tmp_path, attempt, five):
  watcher = Dispatches()
  with pytest.raises(Interrupted):
    attempt(
      5,
      keeper=Checkpoints(tmp_path, 60),
      watchers=[watcher],
      stopping=lambda: watcher.number > 0,  # heard one dispatch later
    )
  kept = Checkpoints(tmp_path, 60).restore([CELL])
  assert len(kept) == LANES
  assert all(state.step > 0 for state in kept.values())
  assert_same(attempt(5, keeper=Checkpoints(tmp_path, 60)), five)

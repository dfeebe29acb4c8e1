"""What asks for products of float32, and what for those that a setting says.

CPUs multiply alike whatever is asked for, so what is asked for is read from what JAX has
traced. `pytest --tf32` runs all tests with products that are rounded unless float32 is.
"""

import dataclasses
import functools
import json
import subprocess
import sys
import types
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sepfx
from experiments.fourier import spectra
from experiments.fourier.chain_of_thought.construction import cyclic_chain
from experiments.fourier.flatness.construction import flat_transformer
from experiments.sample_complexity import STUDY
from sepfx import InvalidSetting, models
from sepfx.measuring import growth
from sepfx.models import ClsTransformer
from sepfx.models.transformer import query_key_products
from sepfx.probes import hessian as curvature
from sepfx.probes.attention import matched
from sepfx.probes.sharpness import sharpness
from sepfx.probes.spans import on_span
from sepfx.studies.merging import identity, merged
from sepfx.tasks import QSTR, FourierSparse, codes
from sepfx.tasks.fourier import Spectrum, all_bits, parities
from sepfx.tasks.links import TwoLayer
from sepfx.training import ERM, Online
from tests import small
from tests.programs import ROOT

HIGHEST = jax.lax.Precision.HIGHEST
ASKED = {
  "float32": HIGHEST,
  "tensorfloat32": jax.lax.Precision.HIGH,
  "bfloat16": jax.lax.Precision.DEFAULT,
}
KEY = jax.random.key(0)


def precisions(jaxpr):
  """What the products of a traced function ask for, those in loops and branches too."""
  found = set()
  for equation in jaxpr.eqns:
    if equation.primitive.name in ("dot_general", "conv_general_dilated"):
      own = equation.params["precision"]
      found |= set(own) if isinstance(own, tuple) else {own}
    for inner in jax.tree.leaves(
      list(equation.params.values()), is_leaf=lambda own: hasattr(own, "eqns")
    ):
      inner = getattr(inner, "jaxpr", inner)
      found |= precisions(inner) if hasattr(inner, "eqns") else set()
  return found


def traced(function, *arguments):
  """The precisions of a function that is called in somebody's fast project."""
  with jax.default_matmul_precision("bfloat16"):
    return precisions(jax.make_jaxpr(function)(*arguments).jaxpr)


def trials(precision):
  """One of each protocol, on tasks whose labels are made of products."""
  few = {"num_test": 20, "check_every": 2, "matmul_precision": precision}
  task, of_bits = QSTR(3, 2, link="relu_teacher", codes="incoherent"), FourierSparse(6)
  online = Online(batch_size=4, max_samples=80, **few)
  fixed = ERM(sample_size=8, batch_size=4, max_steps=20, watched="grad_norm", **few)
  return [
    online.trial(task, task, small.transformer(), "transformer"),
    fixed.trial(of_bits, of_bits, models.build("minimal", of_bits), "minimal"),
  ]


@pytest.mark.parametrize("precision", ASKED)
@pytest.mark.parametrize("k", [0, 1], ids=["online", "fixed"])
def test_a_trial_multiplies_as_its_protocol_says(precision, k):
  trial, seeds = trials(precision)[k], small.seeds(0)
  world, state = jax.eval_shape(trial.world, seeds), jax.eval_shape(trial.init, seeds)
  own, params = {ASKED[precision]}, state.params
  assert traced(trial.evaluate, state, world) == own
  assert traced(lambda params, w: trial.loss(params, w.test, w), params, world) == own
  # Labels are exact, whatever the model is.
  assert traced(trial.world, seeds) == {HIGHEST}
  assert traced(trial.batch, world, 0) <= {HIGHEST}
  trained = traced(lambda *rest: trial.train(*rest, 1), state, world)
  assert own <= trained <= own | {HIGHEST}
  assert traced(lambda *rest: trial.exact.evaluate(*rest), state, world) == {HIGHEST}


class Asking(nn.Module):
  """Notes the settings of JAX in which it is traced."""

  found: ClassVar[list] = []

  @nn.compact
  def __call__(self, inputs):
    self.found.append(jax.config.jax_default_matmul_precision)
    return nn.Dense(1)(inputs)[..., 0]


TASK = QSTR(3, 2)
PROTOCOL = Online(batch_size=8, check_every=2, num_test=50, max_samples=160)


def measured(precision="float32", directory=None, **options):
  return sepfx.measure(
    TASK, small.Linear(), 3, dataclasses.replace(PROTOCOL, matmul_precision=precision),
    num_trials=1, progress=False, directory=directory, **options,
  )  # fmt: skip


def test_a_run_does_not_follow_the_settings_around_it():
  with jax.default_matmul_precision("bfloat16"):
    sepfx.measure(TASK, Asking(), 3, PROTOCOL, num_trials=1, progress=False)
  assert set(Asking.found) == {"float32"}


BITS, SETS = jnp.asarray(all_bits(4)), np.eye(4)[:2]
WEIGHTS = {"a": jnp.ones(3)}
EXACT = {
  "coherence": (codes.coherence, jnp.ones((3, 4))),
  "codes": (lambda key: codes.draw_codes(key, "incoherent", 3, 8), KEY),
  "network": (TwoLayer(jnp.ones(5), jnp.ones((5, 4)), jnp.ones(5)), jnp.ones((7, 2, 2))),
  "parities": (parities, BITS, SETS),
  "labels": (FourierSparse(4).labels, Spectrum(SETS, jnp.ones(2)), BITS),
  "flat": (flat_transformer(SETS, np.array([0.6, 0.8])), BITS),
  "chain": (cyclic_chain(4).step, BITS),
  "query and key": (
    lambda params: query_key_products(params, 5),
    {name: {"kernel": jnp.ones((5, 2, 3)), "bias": jnp.ones((2, 3))}
     for name in ("query", "key")},
  ),
  "attention": (matched, jnp.ones((7, 2, 4)), SETS),
  "span": (on_span, jnp.ones((7, 4)), jnp.ones((4, 3))),
  "spectrum": (lambda a: spectra.spectrum(lambda bits: bits @ a, 4), jnp.ones(4)),
  "coefficients": (
    lambda key: spectra.coefficients(key, lambda b: b @ jnp.ones(4), SETS, 8), KEY
  ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_what_is_exact_by_nature_asks_for_float32(name):
  assert traced(*EXACT[name]) == {HIGHEST}


def loss(params):
  return jnp.sum((jnp.ones((4, 3)) @ params["a"]) ** 4)


@pytest.mark.parametrize(
  "measure",
  [
    lambda key: curvature.hessian_product(loss, WEIGHTS)(jnp.ones(3)),
    lambda key: curvature.hessian_trace(key, loss, WEIGHTS, 2),
    lambda key: curvature.leading_eigenvalues(key, loss, WEIGHTS, 2),
    lambda key: curvature.spectral_density(key, loss, WEIGHTS, 2, 2),
    lambda key: curvature.perturbed(key, loss, WEIGHTS, 0.1, 2),
    lambda key: curvature.gradient_trace(
      lambda params, x: params["a"] @ x, WEIGHTS, jnp.ones((2, 3))
    ),
  ],
)  # fmt: skip
def test_hessians_are_exact(measure):
  assert traced(measure, KEY) == {HIGHEST}


def test_so_is_the_hessian_of_a_trial_that_is_not():
  _, trial = trials("bfloat16")
  seeds = small.seeds(0)
  world, params = jax.eval_shape(trial.world, seeds), trial.state_shapes().params
  probe = functools.partial(sharpness(2), trial)
  assert traced(probe, params, world, KEY) == {HIGHEST}


def test_the_table_of_a_classifier_is_exact():
  model = ClsTransformer(width=8, num_heads=2)
  params = jax.eval_shape(model.init, KEY, BITS)
  evaluated = functools.partial(model.apply, method="evaluate")
  assert HIGHEST in traced(evaluated, params, BITS)


def test_a_protocol_that_does_not_say_is_of_float32():
  trial = dataclasses.replace(trials("bfloat16")[1], protocol=types.SimpleNamespace())
  with trial.own_precision():
    assert jax.config.jax_default_matmul_precision == "float32"


class Projected(FourierSparse):
  """What the model sees and how it is scored are made of products."""

  def encode(self, planted, sample):
    return (sample.bits @ jnp.eye(self.length)).astype(int)

  def score(self, apply, planted, sample, world):
    off = apply(self.encode(planted, sample)) - sample.labels
    return (jnp.ones((1, 1)) @ off[None])[0] ** 2


def test_what_a_task_computes_is_exact():
  task = Projected(6)
  protocol = ERM(sample_size=8, max_steps=20, matmul_precision="bfloat16")
  trial = protocol.trial(task, task, Constant(), "constant")
  world, params = jax.eval_shape(trial.world, small.seeds(0)), trial.state_shapes().params
  for function in (trial.loss, lambda *own: trial.errors(own[0], task, *own[1:])):
    assert traced(function, params, world.sample, world) == {HIGHEST}


class Constant(nn.Module):
  """A model without a product."""

  @nn.compact
  def __call__(self, bits):
    return jnp.full(len(bits), self.param("own", nn.initializers.ones, ()))


def test_trials_in_progress_of_earlier_versions_go_on():
  """Their checkpoints are kept under a digest that knows no precision."""
  before = "54f3838f332516c04dd3ab0299e30d6e01fa3fba463b0a0297920fffe8940d9d"
  assert identity(STUDY.chosen()) == before
  assert identity(STUDY.chosen(["--matmul_precision=bfloat16"])) != before
  of_call = {"seed": 0, "protocol": {"matmul_precision": "float32", "l2": None}}
  old = {"seed": 0, "protocol": {"l2": None}}
  other = {"seed": 0, "protocol": {"matmul_precision": "bfloat16", "l2": None}}
  assert growth.identity(of_call) == growth.identity(old) != growth.identity(other)


def test_an_unknown_precision_is_refused():
  for protocol in (Online, ERM):
    with pytest.raises(InvalidSetting, match="float32 or tensorfloat32 or bfloat16"):
      protocol(matmul_precision="half")


def edited(directory, change):
  """Changes what config.json says."""
  config = json.loads((directory / "config.json").read_text())
  change(config)
  (directory / "config.json").write_text(json.dumps(config))
  (directory / "digests.json").unlink()


def test_a_directory_has_one_precision(tmp_path):
  rows = measured(directory=tmp_path).table
  there = "matmul_precision.*there 'float32', here 'bfloat16'"
  with pytest.raises(InvalidSetting, match=there):
    measured("bfloat16", tmp_path)
  # One that an earlier version wrote on a CPU.
  edited(tmp_path, lambda config: config["settings"]["protocol"].pop("matmul_precision"))
  assert measured(directory=tmp_path).table.tolist() == rows.tolist()


def test_the_command_line_refuses_another_one():
  there, here = STUDY.chosen(), STUDY.chosen(["--matmul_precision=bfloat16"])
  assert STUDY.cells(there)[0].trial.protocol.matmul_precision == "float32"
  assert STUDY.cells(here)[0].trial.protocol.matmul_precision == "bfloat16"
  words = r"matmul_precision \(there 'float32', here 'bfloat16'\)"
  with pytest.raises(InvalidSetting, match=words):
    merged(there, here)
  # Both may be asked for, and are then told apart.
  both, added = merged(there, STUDY.chosen(["--matmul_precision=float32,bfloat16"]))
  assert both.axes["matmul_precision"] == ("float32", "bfloat16")
  assert added == {"matmul_precision": "float32"}


SCRIPT = """
import sys
import jax
from tests import test_matmul_precision as tests, tf32

def bits(precision):
  records = tests.measured(precision)
  curves = b"".join(own.tobytes() for own in records.all_curves.values())
  return records.table.tolist(), curves

plain = bits("float32")
tf32.install()
jax.clear_caches()
assert bits("float32") == plain
assert bits("tensorfloat32")[1] != plain[1]
"""


@pytest.mark.slow
def test_where_products_are_rounded_a_trial_of_float32_is_the_same_bits():
  subprocess.run([sys.executable, "-c", SCRIPT], cwd=ROOT, check=True, timeout=300)

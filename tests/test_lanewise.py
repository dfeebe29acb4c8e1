"""Dataclasses some of whose fields are data of the lanes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sepfx import lanewise
from sepfx.ensembles import leaves_of
from sepfx.models import FeedForward, OnBits
from sepfx.tasks import QSTR, SparseBoolean
from sepfx.training import ERM, AdamW, Online


@lanewise("rate", "inner", "extra")
@dataclasses.dataclass(frozen=True)
class Settings:
  """Refuses, as settings do, what it can see to be wrong."""

  rate: Any = 1.0
  inner: Any = None
  extra: Any = None
  kind: Any = "a"
  size: int = 3

  def __post_init__(self):
    if not 0 <= self.rate < 10:
      raise ValueError(self.rate)


@dataclasses.dataclass(frozen=True)
class Plain:
  """Of no kind that is data."""

  rate: float = 1.0


def structure(**settings):
  return jax.tree.structure(Settings(**settings))


def paths(own):
  """Where the leaves are."""
  return [
    jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(own)
  ]


def test_leaves_are_the_named_fields():
  inner = Settings(rate=2.0, extra=np.arange(3.0))
  own = Settings(rate=0.5, inner=inner, extra=4)
  assert paths(own) == [".rate", ".inner.rate", ".inner.extra", ".extra"]
  leaves = [np.asarray(leaf).tolist() for leaf in jax.tree.leaves(own)]
  assert leaves == [0.5, 2.0, [0.0, 1.0, 2.0], 4]


@pytest.mark.parametrize(
  "value", [None, True, "text", abs, Plain(), optax.sgd(0.1), (1.0, 2.0)], ids=type
)
def test_what_is_no_number_stays_structure(value):
  own = Settings(rate=0.5, extra=value)
  assert jax.tree.leaves(own) == [0.5]
  assert structure(extra=value) == structure(extra=value, rate=0.1)
  assert structure(extra=value) != structure(extra=1.0)
  assert jax.tree.map(lambda a: 2 * a, own) == Settings(rate=1.0, extra=value)


def test_structure_is_all_that_is_no_data():
  assert structure(rate=0.5) == structure(rate=2.0)
  assert hash(structure(rate=0.5)) == hash(structure(rate=2.0))
  for other in ({"kind": "b"}, {"size": 4}, {"inner": Settings()}, {"extra": 1.0}):
    assert structure(**other) != structure()
  assert structure(inner=Settings(kind="b")) != structure(inner=Settings())


def test_values_without_a_hash_are_told_apart_by_comparison():
  assert structure(kind=[1, 2]) == structure(kind=[1, 2])
  one, two = (structure(kind=[1, 2]).node_data()[1] for _ in range(2))
  assert hash(one) == hash(two)  # of what JAX keeps, which it need not hash itself
  assert structure(kind=[1, 2]) != structure(kind=[1, 3])
  array, same, other = np.arange(3), np.arange(3), np.arange(1, 4)
  assert structure(kind=array) == structure(kind=array)
  assert structure(kind=array) != structure(kind=other)
  # Arrays have no one truth value: rather another program than a wrong one.
  assert structure(kind=array) != structure(kind=same)


def test_one_program_for_all_data():
  traced = []

  @jax.jit
  def total(own):
    traced.append(own.kind)
    return own.rate * own.size + own.inner.rate

  for kind in ("a", [1, 2]):
    for rate in (0.5, 2.0):
      own = Settings(rate=rate, inner=Settings(rate=3.0), kind=kind)
      assert total(own) == pytest.approx(3 * rate + 3)
  assert traced == ["a", [1, 2]]


def test_tracers_are_not_checked():
  """`__post_init__` could not compare them; `replace` outside still does."""
  rates = jnp.array([0.5, 20.0])
  leaves, own = jax.tree.flatten(Settings())
  assert leaves == [1.0]
  doubled = jax.jit(jax.vmap(lambda rate: 2 * jax.tree.unflatten(own, [rate]).rate))
  np.testing.assert_array_equal(doubled(rates), [1.0, 40.0])
  assert jax.tree.unflatten(own, [20.0]).rate == 20.0
  with pytest.raises(ValueError, match=r"20\.0"):
    dataclasses.replace(Settings(), rate=20.0)


def test_a_name_that_is_no_field_is_refused():
  with pytest.raises(TypeError, match="Plain has no field 'speed'"):
    lanewise("rate", "speed")(Plain)


def test_data_of_the_library():
  bits, model = SparseBoolean(length=6), OnBits(FeedForward((4,), num_outputs=2))
  optimizer = [".protocol.optimizer.learning_rate", ".protocol.optimizer.weight_decay"]
  trial = ERM(l2=0.1).trial(bits, dataclasses.replace(bits, noise=0.2), model)
  assert paths(trial) == [".task.noise", ".test_task.noise", *optimizer, ".protocol.l2"]
  values = [leaf.item() for leaf in leaves_of(trial)]
  assert values == pytest.approx([0.0, 0.2, 1e-3, 1e-4, 0.1])
  prompts = QSTR(length=3, token_dim=2)
  scaled = Online(init_scale=2.0).trial(prompts, prompts, FeedForward((4,)))
  assert paths(scaled) == [*optimizer, ".protocol.init_scale"]
  # Any other optimizer is a constant of the program.
  fixed = Online(optimizer=optax.sgd(0.1)).trial(prompts, prompts, FeedForward((4,)))
  assert paths(fixed) == []


def test_trials_of_one_structure_differ_in_data_alone():
  bits, model = SparseBoolean(length=6), OnBits(FeedForward((4,), num_outputs=2))

  def of(rate=1e-3, noise=0.0, **settings):
    task = dataclasses.replace(bits, noise=noise)
    own = ERM(optimizer=AdamW(rate), **settings).trial(task, task, model)
    return jax.tree.structure(own)

  assert of() == of(rate=0.5, noise=0.25)
  for other in ({"sample_size": 7}, {"l2": 0.0}, {"watched": "train_loss"}):
    assert of(**other) != of()

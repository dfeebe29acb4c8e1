"""Values as people write them: taken, or refused in words before anything compiles."""

import flax.linen as nn
import flax.nnx as nnx
import jax.numpy as jnp
import numpy as np
import pytest

import sepfx
from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting
from sepfx.models import GRU
from sepfx.models.layers.network import check_inputs
from sepfx.tasks import CLASSIFICATION, QSTR, FourierSparse, ParityChain, SparseBoolean
from tests.own_task import Dense, Side


@pytest.mark.parametrize(
  ("made", "name", "value"),
  [
    (lambda: sepfx.Online(max_samples=1e9), "max_samples", 10**9),
    (lambda: sepfx.Online(batch_size="8"), "batch_size", 8),
    (lambda: sepfx.Online(thresholds="0.7"), "thresholds", (0.7,)),
    (lambda: sepfx.Online(thresholds=["0.7", 0.5]), "thresholds", (0.7, 0.5)),
    (
      lambda: sepfx.Online(thresholds=(own for own in (0.5, 0.7))),
      "thresholds",
      (0.7, 0.5),
    ),
    (lambda: sepfx.Online(screen="false"), "screen", False),
    (lambda: sepfx.Online(num_test=np.int64(7)), "num_test", 7),
    (lambda: sepfx.ERM(max_steps=1e3, sample_size="20"), "max_steps", 1000),
    (lambda: sepfx.ERM(batch_size="none"), "batch_size", None),
    (lambda: sepfx.AdamW("1e-3"), "learning_rate", 1e-3),
    (lambda: sepfx.AdamW(decay_steps=5e3), "decay_steps", 5000),
    (lambda: QSTR(token_dim="3"), "token_dim", 3),
    (lambda: QSTR(length=4.0), "length", 4),
    (lambda: QSTR(code_dim="none"), "code_dim", None),
    (lambda: SparseBoolean(subset=["1", 2.0, 3]), "subset", (1, 2, 3)),
    (lambda: FourierSparse(length=8.0, degree="2"), "degree", 2),
    (lambda: ParityChain(length="5"), "length", 5),
  ],
)
def test_taken(made, name, value):
  found = getattr(made(), name)
  assert found == value
  assert type(found) is type(value)


@pytest.mark.parametrize(
  ("made", "says"),
  [
    (lambda: sepfx.Online(batch_size=8.5), "batch_size: got 8.5, takes an integer"),
    (lambda: sepfx.Online(batch_size=None), "batch_size: got None, takes an integer"),
    (lambda: sepfx.Online(batch_size=True), "batch_size: got True, takes an integer"),
    (lambda: sepfx.Online(max_samples="1e9"), "max_samples: got '1e9', takes an integ"),
    (lambda: sepfx.Online(max_samples="many"), "max_samples: got 'many', takes an int"),
    (lambda: sepfx.Online(thresholds=[None]), "thresholds: got None, takes a number"),
    (lambda: sepfx.Online(thresholds=0.7), "thresholds: got 0.7, takes several"),
    (lambda: sepfx.Online(l2={}), "l2: got {}, takes a number or none"),
    (lambda: sepfx.Online(screen=1), "screen: got 1, takes true or false"),
    (lambda: sepfx.ERM(threshold=None), "threshold: got None, takes a number"),
    (lambda: sepfx.ERM(watched=3), "watched: got 3, takes test_error or train_loss"),
    (lambda: sepfx.AdamW(None), "learning_rate: got None, takes a number"),
    (lambda: sepfx.AdamW(warmup_steps=1.5), "warmup_steps: got 1.5, takes an integer"),
    (lambda: sepfx.AdamW(clip_norm=[1]), "clip_norm: got"),
    (lambda: QSTR(length=None), "length: got None, takes an integer"),
    (lambda: QSTR(codes=3), "codes: got 3, takes text"),
    (lambda: SparseBoolean(noise=None), "noise: got None, takes a number"),
    (lambda: SparseBoolean(subset=3), "subset: got 3, takes"),
  ],
)
def test_refused(made, says):
  with pytest.raises(InvalidSetting) as refusal:
    made()
  assert str(refusal.value).startswith(says)


def test_what_is_right_stays_as_it_is():
  """A whole number where a number is asked for, and arrays: no program changes."""
  rate = jnp.float32(0.1)
  own = sepfx.AdamW(learning_rate=rate, weight_decay=0)
  assert own.learning_rate is rate
  assert type(own.weight_decay) is int
  assert kinds.taken(rate, int | None, "x") is rate
  function = print
  assert kinds.taken(function, specifications.Any, "x") is function


def call(**settings):
  arguments = {"task": QSTR(token_dim=2), "models": "ffn", "lengths": 4, **settings}
  protocol = arguments.pop("protocol", sepfx.Online(thresholds=(5.0,)))
  return sepfx.measure(
    *(arguments.pop(name) for name in ("task", "models", "lengths")), protocol,
    progress=False, **arguments,
  )  # fmt: skip


@pytest.mark.parametrize(
  ("settings", "says"),
  [
    ({"lanes": 1.5}, "lanes: got 1.5, takes an integer"),
    ({"lanes": None}, "lanes: got None, takes an integer"),
    ({"protocol": {}}, r"protocol: got {}, takes a protocol, such as"),
    ({"test_task": {}}, "test_task: got {}, takes a task"),
    ({"probes": 5, "protocol": sepfx.Online()}, "probes: got 5, takes norms, attention"),
    ({"lengths": 4.5}, "lengths: got 4.5, takes an integer from 1"),
    ({"num_trials": "two"}, "num_trials: got 'two', takes an integer from 1"),
    ({"keep_weights": "maybe"}, "keep_weights: got 'maybe', takes true or false"),
    ({"directory": 5}, "directory: got 5, takes the path of a directory"),
    ({"devices": 5}, "devices: got 5, takes several"),
    ({"watchers": 5}, "watchers: got 5, takes several"),
    ({"axes": {"learning_rate": [None]}}, "learning_rate: got None, takes a number"),
    ({"axes": {"batch_size": [{}]}}, "batch_size: got {}, takes an integer"),
    ({"models": Dense(name="transformer")}, "models: got 'transformer', takes a module"),
  ],
)
def test_a_call_refuses(settings, says):
  with pytest.raises(InvalidSetting) as refusal:
    call(**settings)
  assert str(refusal.value).startswith(says)


@pytest.mark.parametrize(
  "settings",
  [
    {"probes": None}, {"watchers": None}, {"axes": None}, {"test_task": None},
    {"lanes": "2"}, {"lengths": "4"}, {"lengths": 4.0}, {"num_trials": 1e0},
    {"seed": "1"}, {"keep_weights": "true"}, {"axes": {"batch_size": ["16", 8.0]}},
  ],
)  # fmt: skip
def test_a_call_takes(settings):
  """As far as its threshold, above the error of a constant, which is checked later."""
  with pytest.raises(InvalidSetting, match="thresholds: got 5"):
    call(**settings)


class OfBits(nn.Module):
  @nn.compact
  def __call__(self, bits):
    check_inputs(bits, "n T")
    return nn.Dense(2)(bits)


def test_messages():
  online = sepfx.Online(thresholds=(0.4,))
  with pytest.raises(InvalidSetting) as refusal:
    call(task=Side(copies=3), models=OfBits(), protocol=online)
  says = "takes a module that maps inputs [2, 4, 3] to outputs [2, 2]; this one is for "
  assert str(refusal.value).endswith(says + "inputs [n T]")

  class Named(Side):
    objective = CLASSIFICATION._replace(name="mine")

  with pytest.raises(InvalidSetting) as refusal:
    call(task=Named(), models="transformer", protocol=online)
  assert str(refusal.value).endswith("takes package.module:factory")


def test_what_is_refused_has_one_line():
  class Unknown:
    def __repr__(self):
      return "\n".join(f"line {k} of many" for k in range(100))

  error = InvalidSetting("models", Unknown(), "something else")
  assert "\n" not in str(error)
  assert len(str(error)) < 200
  module = nnx.Linear(4, 2, rngs=nnx.Rngs(0))
  assert "\n" not in str(InvalidSetting("models", module, "another"))


def test_an_own_class_may_not_be_called_as_a_model_of_the_library():
  for name in ("transformer", "gru:units=3"):
    with pytest.raises(InvalidSetting, match="takes a module of another name"):
      call(models=Dense(name=name))
  with pytest.raises(InvalidSetting, match="thresholds"):  # one of the library may
    call(models=GRU(units=3, name="gru"))

"""Modules in Flax's usual forms: flags of the call, random streams, `flax.nnx`."""

import dataclasses
import functools
import json

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sepfx
from sepfx import models
from sepfx.errors import InvalidSetting
from sepfx.measuring import measurement
from sepfx.models import DenseFirst, OnBits
from sepfx.models.building import modes
from sepfx.records import weights
from sepfx.records.beginning import begun
from sepfx.records.run_directory import RunDirectory
from sepfx.tasks import QSTR
from tests import small

KEYS = jax.random.split(jax.random.key(0), 3)
INPUTS = jax.random.normal(jax.random.key(1), (2, 3, 4))
# One check of two steps.
SHORT = sepfx.Online(
  thresholds=(0.9,), batch_size=8, check_every=2, num_test=20, max_samples=16
)
measure = functools.partial(
  sepfx.measure, protocol=SHORT, num_trials=1, progress=False, keep_weights=True
)


def dropped(inputs, off, rate=0.5):
  """A dense layer, dropout in a scope of its own, and another layer."""
  hidden = nn.Dropout(rate, deterministic=off)(nn.Dense(8)(inputs))
  return nn.Dense(1)(hidden)[..., 0]


class ByKey(nn.Module):
  """This package's convention."""

  rate: float = 0.5

  @nn.compact
  def __call__(self, inputs):
    return dropped(inputs, not self.has_rng("dropout"), self.rate)


class Train(nn.Module):
  rate: float = 0.5

  @nn.compact
  def __call__(self, inputs, train: bool = False):
    return dropped(inputs, not train, self.rate)


class Training(nn.Module):
  @nn.compact
  def __call__(self, inputs, *, training):
    return dropped(inputs, not training)


class IsTraining(nn.Module):
  @nn.compact
  def __call__(self, inputs, is_training, /):
    return dropped(inputs, not is_training)


class Deterministic(nn.Module):
  @nn.compact
  def __call__(self, inputs, mask=None, deterministic=True):
    return dropped(inputs, deterministic)


class Rematerialised(nn.Module):
  @nn.compact
  def __call__(self, inputs, train):
    return dropped(inputs, not train)


FORMS = {
  "train": Train(),
  "training": Training(),
  "is_training": IsTraining(),
  "deterministic": Deterministic(),
  "train, by its place": nn.remat(Rematerialised, static_argnums=(2,))(),
}


def unboxed(module, inputs=INPUTS):
  return modes.init(module, jax.random.key(2), inputs)["params"]


@pytest.mark.parametrize("form", FORMS)
def test_a_flag_of_the_call_is_passed(form):
  """The same numbers as of the module that is told by a key: it has the same scopes."""
  module, plain = FORMS[form], ByKey()
  assert modes.described(module) == form.partition(",")[0]
  params = unboxed(module)
  theirs = plain.init(jax.random.key(2), INPUTS)["params"]
  jax.tree.map(np.testing.assert_array_equal, params, theirs)
  for key in (None, *KEYS):
    rngs = None if key is None else {"dropout": key}
    expected = plain.apply({"params": params}, INPUTS, rngs=rngs)
    found = models.predict(module, params, INPUTS, dropout_key=key)
    np.testing.assert_array_equal(found, expected)
  np.testing.assert_array_equal(
    models.evaluate(module, params, INPUTS), plain.apply({"params": params}, INPUTS)
  )


@pytest.mark.slow
def test_training_with_a_flag_is_training_with_a_key():
  """Weights, and losses without dropout, are those of this package's convention."""
  ends = {}
  for module in (ByKey(), Train(), Train(0.0)):
    trial = dataclasses.replace(small.TRIAL, model=module, protocol=SHORT)
    trial.check()
    own = small.seeds(0)
    advance = jax.jit(lambda own, t=trial: t.advance(t.init(own), t.world(own)))
    ends[module] = advance(own)
  by_key, by_flag, without = ends.values()
  jax.tree.map(np.testing.assert_array_equal, by_flag.params, by_key.params)
  assert by_flag.curve.loss == by_key.curve.loss
  assert without.curve.loss != by_flag.curve.loss


@pytest.mark.parametrize("wrapper", [DenseFirst, OnBits])
def test_wrappers_pass_the_flag_on(wrapper):
  inputs = jnp.ones((2, 3), int) if wrapper is OnBits else INPUTS
  module = wrapper(model=Train())
  assert modes.described(module) == "train"
  params = unboxed(module, inputs)
  one, other = (models.predict(module, params, inputs, dropout_key=k) for k in KEYS[:2])
  assert not np.array_equal(one, other)
  assert modes.described(wrapper(model=ByKey())) == ""


class Noisy(nn.Module):
  """Adds noise from a stream of its own where it is there, and drops out."""

  @nn.compact
  def __call__(self, inputs):
    outputs = dropped(inputs, not self.has_rng("dropout"))
    if self.has_rng("noise"):
      outputs += jax.random.normal(self.make_rng("noise"), outputs.shape)
    return outputs


class NeedsNoise(nn.Module):
  """Draws without asking, where it learns."""

  @nn.compact
  def __call__(self, inputs, train=False):
    outputs = dropped(inputs, not train)
    if train:
      outputs += jax.random.normal(self.make_rng("noise"), outputs.shape)
    return outputs


class AlwaysNoisy(nn.Module):
  @nn.compact
  def __call__(self, inputs):
    outputs = nn.Dense(1)(inputs)[..., 0]
    return outputs + jax.random.normal(self.make_rng("noise"), outputs.shape)


@pytest.mark.parametrize(
  ("module", "flags"), [(Noisy(), {}), (NeedsNoise(), {"train": True})]
)
def test_other_streams_have_keys_of_their_own(module, flags):
  params = unboxed(module)
  found = models.predict(module, params, INPUTS, dropout_key=KEYS[0])
  rngs = {"dropout": KEYS[0], "noise": modes.stream_key(KEYS[0], "noise")}
  expected = module.apply({"params": params}, INPUTS, rngs=rngs, **flags)
  np.testing.assert_array_equal(found, expected)
  plain = module.apply({"params": params}, INPUTS)
  np.testing.assert_array_equal(models.predict(module, params, INPUTS), plain)


def test_the_key_of_a_stream_is_the_same_in_every_version():
  found = jax.random.key_data(modes.stream_key(jax.random.key(0), "noise"))
  word = 0xC0A5E2EF  # the first four bytes of sha256(b"noise"), the least of them first
  expected = jax.random.key_data(jax.random.fold_in(jax.random.key(0), word))
  np.testing.assert_array_equal(found, expected)


def test_modules_that_draw_where_they_are_evaluated_are_refused():
  for module in (AlwaysNoisy(), DrawingMixer):
    with pytest.raises(InvalidSetting, match="draws no random numbers where it is eval"):
      measure(QSTR(token_dim=2), module, 3)


def cells_of(*given):
  """Cells of models at one length, and what `measure` would write of them."""
  return planned(QSTR(token_dim=2), given, 3).cells


def planned(*arguments, **options):
  """What `sepfx.measure` is about to run."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(measurement._Call, "in_memory", lambda call, _: call)
    return measure(*arguments, **options)


def test_a_directory_is_of_one_mode(tmp_path):
  """Begun without the flag, it is refused; models of the library say nothing there."""
  text = "tests.test_modes:Train"
  cells = cells_of(small.Linear(), text)
  config = tmp_path / "config.json"

  def begin(cells):
    with RunDirectory(tmp_path) as there:
      begun(there, {}, cells)
    return json.loads(config.read_text())

  assert "modes" not in begin(cells[:1])
  stored = begin(cells)  # one of the two is new there
  assert stored["modes"] == {text: "train"}
  assert begin(cells)["modes"] == stored["modes"]
  for there, words in (
    ({}, "given no flag, here train says"),
    ({text: "training"}, "given training, here train says"),
  ):
    config.write_text(json.dumps({**stored, "modes": there}))
    with pytest.raises(InvalidSetting, match=f"model: got '{text}', takes.*{words}"):
      begin(cells)
  assert begin(cells[:1])  # the other model is not asked for


class Mixer(nnx.Module):
  """With dropout, a list, and attention that has to be told its mode."""

  def __init__(self, dim: int, width: int = 8, *, rngs: nnx.Rngs):
    self.first = nnx.Linear(dim, width, rngs=rngs)
    self.dropout = nnx.Dropout(0.5, rngs=rngs)
    self.layers = nnx.List([nnx.Linear(width, width, rngs=rngs) for _ in range(2)])
    self.attention = nnx.MultiHeadAttention(2, width, rngs=rngs, decode=False)
    self.last = nnx.Linear(width, 1, rngs=rngs)

  def __call__(self, inputs):
    hidden = self.dropout(nnx.relu(self.first(inputs)))
    for layer in self.layers:
      hidden = nnx.relu(layer(hidden))
    return self.last(self.attention(hidden))[..., 0]


class FrozenMixer(nnx.Module):
  """Its dropout has a key of its own, the same in each call."""

  def __init__(self, dim: int, *, rngs: nnx.Rngs):
    self.first = nnx.Linear(dim, 8, rngs=rngs)
    self.dropout = nnx.Dropout(0.5, rngs=nnx.Rngs(0))
    self.last = nnx.Linear(8, 1, rngs=rngs)

  def __call__(self, inputs):
    return self.last(self.dropout(self.first(inputs)))[..., 0]


class CalledWithRngs(nnx.Module):
  """It is given its streams in the call, and a flag."""

  def __init__(self, dim: int, *, rngs: nnx.Rngs):
    self.first = nnx.Linear(dim, 8, rngs=rngs)
    self.dropout = nnx.Dropout(0.5)
    self.last = nnx.Linear(8, 1, rngs=rngs)

  def __call__(self, inputs, *, train: bool, rngs: nnx.Rngs):
    hidden = self.first(inputs)
    if train:
      hidden = self.dropout(hidden, rngs=rngs)
    return self.last(hidden)[..., 0]


class DrawingMixer(nnx.Module):
  def __init__(self, task, *, rngs: nnx.Rngs):
    self.rngs = rngs.fork()
    self.only = nnx.Linear(task.input_dim, 1, rngs=rngs)

  def __call__(self, inputs):
    outputs = self.only(inputs)[..., 0]
    return outputs + self.rngs.normal(outputs.shape)


class Holding(nn.Module):
  """A linen module with one of nnx inside."""

  @nn.compact
  def __call__(self, inputs):
    inner = nnx.bridge.ToLinen(Mixer, args=(inputs.shape[-1],), name="inner")
    return nn.Dense(3)(inner(inputs))


NNX = {
  "class": nnx.bridge.to_linen(Mixer, 4),
  "a key of its own": nnx.bridge.ToLinen(FrozenMixer, kwargs={"dim": 4}),
  "rngs in the call": nnx.bridge.to_linen(CalledWithRngs, 4),
  "inside linen's": Holding(),
  "behind a layer": DenseFirst(nnx.bridge.to_linen(Mixer, 4)),
}


@pytest.mark.parametrize("form", NNX)
def test_wrapped_nnx_modules_drop_out_where_they_learn_alone(form):
  module = NNX[form]
  variables = modes.init(module, jax.random.key(2), INPUTS)
  assert set(variables) == {"params"}
  params = variables["params"]
  predict = jax.jit(lambda key: models.predict(module, params, INPUTS, dropout_key=key))
  one, again, other = predict(KEYS[0]), predict(KEYS[0]), predict(KEYS[1])
  np.testing.assert_array_equal(one, again)
  assert not np.array_equal(one, other)
  evaluated = models.evaluate(module, params, INPUTS)
  assert not np.array_equal(one, evaluated)
  np.testing.assert_array_equal(evaluated, models.evaluate(module, params, INPUTS))
  assert not modes.draws(module, params, INPUTS)


def test_evaluation_is_that_of_nnx():
  module = NNX["class"]
  params = unboxed(module)
  theirs = Mixer(4, rngs=nnx.Rngs(5))
  nnx.update(theirs, params)
  theirs.eval()
  np.testing.assert_allclose(
    models.evaluate(module, params, INPUTS), theirs(INPUTS), rtol=1e-5, atol=1e-6
  )


def test_names_and_fields_of_wrapped_modules():
  module = NNX["class"]
  assert models.record_name(module) == "Mixer:dim=4"
  assert models.record_name(nnx.bridge.to_linen(Mixer, 4, width=8)) == "Mixer:dim=4"
  assert models.record_name(nnx.bridge.to_linen(Mixer, 4, name="mine")) == "mine"
  wider = models.with_fields(module, {"width": 16})
  assert models.record_name(wider) == "Mixer:dim=4:width=16"
  assert unboxed(wider)["first"]["kernel"].shape == (4, 16)
  assert not models.has_field(module, "units")
  assert not models.has_field(module, "rngs")
  with pytest.raises(InvalidSetting, match=r"width: got '2\.5', takes an integer"):
    models.with_fields(module, {"width": 2.5})


def test_nnx_modules_are_built_from_text_and_refused_as_instances():
  task = QSTR(length=3, token_dim=2)
  built = models.build("tests.test_modes:Mixer:dim=5:width=16", task)
  assert models.record_name(built) == "Mixer:dim=5:width=16"
  for own in (Mixer(4, rngs=nnx.Rngs(0)), [Mixer(4, rngs=nnx.Rngs(0))]):
    with pytest.raises(InvalidSetting, match="to_linen") as error:
      measure(task, own, 3)
    assert len(str(error.value)) < 250


def of_task(task, width=4):
  """A linen module that is as wide as the task's inputs."""
  return small.Linear() if width == 4 else Sized(task.input_dim, width)


class Sized(nn.Module):
  """Takes inputs of one dimension alone."""

  dim: int
  length: int = 3

  @nn.compact
  def __call__(self, inputs):
    assert inputs.shape[1:] == (self.length, self.dim) or self.length == 64
    return nn.Dense(1)(inputs)[..., 0]


class OfLength(nn.Module):
  length: int

  @nn.compact
  def __call__(self, inputs):
    assert inputs.shape[1] == self.length
    return nn.Dense(self.length)(inputs.reshape(len(inputs), -1))


class MixerOfTask(nnx.Module):
  def __init__(self, task, *, rngs: nnx.Rngs):
    self.inner = Mixer(task.input_dim, rngs=rngs)

  def __call__(self, inputs):
    return self.inner(inputs)


def of_rngs(rngs):
  """A function that makes nnx modules."""
  return Mixer(7, rngs=rngs)


def test_one_module_per_cell():
  """By functions, classes and partials; the names are the same at all lengths."""
  factories = [of_task, functools.partial(of_task, width=64), OfLength, MixerOfTask]
  plan = planned(QSTR(token_dim=2), factories, [3, 5])
  found = [(cell.coordinates["model"], cell.coordinates["length"]) for cell in plan.cells]
  names = ["of_task", "of_task:width=64", "OfLength", "MixerOfTask"]
  assert found == [(name, length) for name in names for length in (3, 5)]
  assert [cell.trial.model.length for cell in plan.cells[4:6]] == [3, 5]
  assert list(plan.settings["models"]) == names


def test_a_module_follows_an_axis_of_the_task():
  factory = lambda task: Sized(task.input_dim, 64)  # noqa: E731
  plan = planned(QSTR(), factory, 3, axes={"token_dim": [2, 3]})
  assert [cell.trial.model.dim for cell in plan.cells] == [
    cell.trial.task.input_dim for cell in plan.cells
  ]
  assert {cell.coordinates["model"] for cell in plan.cells} == {"lambda"}


@pytest.mark.slow
def test_nnx_modules_are_measured_and_kept(tmp_path):
  task = QSTR(length=3, token_dim=2)
  dim = task.input_dim
  call = functools.partial(
    measure, task, [MixerOfTask, nnx.bridge.to_linen(Mixer, dim)], 3
  )
  one, again = call(directory=tmp_path), call(directory=tmp_path)
  assert set(one.table["model"]) == {"MixerOfTask", f"Mixer:dim={dim}"}
  np.testing.assert_array_equal(one.table, again.table)
  loaded = sepfx.load(tmp_path)
  for name, trained in loaded.models.items():
    in_memory = call().models[name]
    jax.tree.map(np.testing.assert_array_equal, trained.params, in_memory.params)


def test_functions_of_rngs_and_text_are_factories():
  task = QSTR(length=3, token_dim=6 // 2)
  dim = task.input_dim
  own = {7: of_rngs, dim: functools.partial(Mixer, dim)}
  assert models.record_name(models.made(own[7], task, "of_rngs")) == "of_rngs"
  assert models.factory_name(own[dim]) == f"Mixer:dim={dim}"
  plan = planned(task, own[dim], 3)  # which makes one, to see what it gives
  assert plan.cells[0].coordinates["model"] == f"Mixer:dim={dim}"
  with pytest.raises(InvalidSetting, match=r"dot_general|contracting"):
    planned(task, of_rngs, 3)  # for inputs of 7 numbers
  assert models.build("tests.test_modes:OfLength", task).length == 3
  assert models.build("tests.test_modes:OfLength:length=4", task).length == 4
  assert models.build("tests.test_modes:MixerOfTask", task).kwargs["task"] == task


class Weighted(nn.Module):
  """It has an array in a field."""

  weights: np.ndarray

  @nn.compact
  def __call__(self, inputs):
    return nn.Dense(1)(inputs)[..., 0] * self.weights[0]


@pytest.mark.parametrize("weights", [np.ones(4), jnp.ones(4)])
def test_a_module_with_an_array_in_a_field_needs_a_name(weights):
  """Its text would be the array's."""
  with pytest.raises(InvalidSetting, match=r"Weighted\(..., name='mine'\).* weights is"):
    planned(QSTR(token_dim=2), Weighted(weights), 3)
  plan = planned(QSTR(token_dim=2), Weighted(weights, name="mine"), 3)
  assert plan.cells[0].coordinates["model"] == "mine"


@pytest.mark.parametrize("model", [lambda: small.Linear(), lambda width: None, Train])
def test_other_callables_are_refused(model):
  with pytest.raises(InvalidSetting, match=r"models: .*did you forget"):
    measure(QSTR(token_dim=2), model, 3)


TRIAL = "task=qstr/model=mine/length=3/trial=0"


def test_weights_in_lists_come_back_in_lists(tmp_path):
  params = jax.tree.map(np.asarray, unboxed(NNX["class"]))
  path = tmp_path / weights.path_of(TRIAL)
  path.parent.mkdir(parents=True)
  path.write_bytes(weights.serialised(TRIAL, NNX["class"], params))
  found = weights.Kept(tmp_path, [TRIAL])[TRIAL].params
  assert set(found["layers"]) == {0, 1}
  jax.tree.map(np.testing.assert_array_equal, found, params)
  trained = weights.trained(NNX["class"], found)
  np.testing.assert_array_equal(
    trained(INPUTS), models.evaluate(NNX["class"], params, INPUTS)
  )

"""What protocols can be asked for beyond the published, against plainly written loops."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sepfx.errors import InvalidSetting
from sepfx.models import FeedForward, OnBits
from sepfx.tasks import QSTR, SparseBoolean
from sepfx.training import ERM, AdamW, Online, optimizer
from tests import small

TASK = SparseBoolean(length=6, sparsity=2, noise=0.1)
MODEL = OnBits(FeedForward((5,), num_outputs=2))
PROTOCOL = ERM(
  sample_size=30,
  threshold=1e-9,
  optimizer=optax.sgd(0.5),
  check_every=5,
  num_test=300,
  max_steps=60,
)
TRIAL = PROTOCOL.trial(TASK, dataclasses.replace(TASK, noise=0.0), MODEL)


def plain_loss(trial, world, l2=0.0):
  """params -> mean loss on the training sample plus penalty, from its definition."""
  inputs = trial.task.encode(world.planted, world.sample)
  labels = world.sample.labels

  def loss(params):
    logits = trial.model.apply({"params": params}, inputs)
    of_labels = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    losses = jnp.log(jnp.sum(jnp.exp(logits), axis=1)) - of_labels
    squares = sum(jnp.sum(a**2) for a in jax.tree.leaves(params))
    return jnp.mean(losses) + l2 * squares

  return loss


def plain_descent(loss, params, rate, steps):
  """Gradient descent, all its iterates."""
  gradient = jax.jit(jax.grad(loss))
  iterates = [params]
  for _ in range(steps):
    grads = gradient(iterates[-1])
    iterates.append(jax.tree.map(lambda a, g: a - rate * g, iterates[-1], grads))
  return iterates


def at_checks(trial, world, l2=0.0):
  """Iterates of plain descent at each check of a trial's budget."""
  params = trial.init(small.seeds(0)).params
  loss = plain_loss(trial, world, l2)
  every, steps = trial.protocol.check_every, trial.protocol.max_steps
  return plain_descent(loss, params, 0.5, steps)[every::every]


@pytest.mark.parametrize("watched", ["train_loss", "grad_norm"])
@pytest.mark.slow
def test_a_trial_ends_at_the_first_check_where_what_is_watched_is_below(watched):
  own = small.seeds(0)
  watching = small.with_protocol(TRIAL, watched=watched, l2=0.02)
  world = watching.world(own)
  params = at_checks(watching, world, l2=0.02)
  penalised, loss = plain_loss(watching, world, l2=0.02), plain_loss(watching, world)
  gradients = [jax.tree.leaves(jax.grad(penalised)(each)) for each in params]
  expected = {
    "train_loss": [float(loss(each)) for each in params],
    "grad_norm": [
      float(np.sqrt(sum(np.sum(np.square(a)) for a in each))) for each in gradients
    ],
  }
  values = np.array(expected[watched])
  middle = len(values) // 2
  threshold = float(np.mean(np.sort(values)[middle - 1 : middle + 1]))
  first = int(np.flatnonzero(values < threshold)[0])
  assert 0 < first < len(values) - 1  # or there is little to see
  watching = small.with_protocol(watching, threshold=threshold)
  state = small.run_to_end(watching, own)
  curve = watching.curve(state)
  assert len(curve) == first + 1
  for name, of_all in expected.items():
    if name in curve.dtype.names:
      np.testing.assert_allclose(curve[name], of_all[: first + 1], rtol=1e-4)
  assert ("grad_norm" in curve.dtype.names) == (watched == "grad_norm")
  (verdict,) = watching.outcomes(state)
  assert (verdict.steps, verdict.outcome) == (5 * (first + 1), "reached")
  # What is told of it is the held-out accuracy all the same.
  assert verdict.best == pytest.approx(1 - curve["test_error"].min())


@pytest.mark.slow
def test_held_out_loss_is_of_the_held_out_samples():
  own = small.seeds(0)
  world = TRIAL.world(own)
  curve = TRIAL.curve(small.run_to_end(TRIAL, own))
  held_out = plain_loss(TRIAL, world._replace(sample=world.test))
  expected = [float(held_out(params)) for params in at_checks(TRIAL, world)]
  np.testing.assert_allclose(curve["test_loss"], expected, rtol=1e-4)


def test_thresholds_of_what_is_no_test_error_may_be_any():
  above_the_best_constant = {"threshold": 0.6}
  with pytest.raises(InvalidSetting, match="the error of the best constant"):
    small.with_protocol(TRIAL, **above_the_best_constant).check()
  for watched in ("train_loss", "grad_norm"):
    small.with_protocol(TRIAL, watched=watched, **above_the_best_constant).check()


@pytest.mark.parametrize(
  ("l2", "init_scale"), [(0.1, None), (0.0, 0.3), (None, 0.3), (0.1, 0.3)]
)
def test_penalty_and_scale_in_a_plain_loop(l2, init_scale):
  own = small.seeds(1)
  trial = small.with_protocol(TRIAL, l2=l2, init_scale=init_scale)
  world, state = jax.jit(trial.world)(own), jax.jit(trial.init)(own)
  weights_key, *_ = jax.random.split(own.trial, 4)
  params = MODEL.init(weights_key, world.sample.bits)["params"]
  params = jax.tree.map(lambda a: (init_scale or 1.0) * a, params)
  # A compiler may round what weights are drawn through another way: an ulp of 0.1.
  chex.assert_trees_all_close(state.params, params, rtol=1e-6, atol=1e-8)
  trained = jax.jit(trial.train)(state, world, 20)
  *_, expected = plain_descent(plain_loss(trial, world, l2 or 0.0), params, 0.5, 20)
  chex.assert_trees_all_close(trained.params, expected, rtol=1e-3, atol=1e-5)
  loss = trial.loss(trained.params, world.sample, world)
  plain = plain_loss(trial, world, l2 or 0.0)(expected)
  assert float(loss) == pytest.approx(float(plain), rel=1e-4)
  # The curve's loss is without the penalty.
  curve = jax.jit(trial.evaluate)(trained, world).curve
  assert float(curve.train_loss[0]) == pytest.approx(
    float(plain_loss(trial, world)(expected)), rel=1e-4
  )


@pytest.mark.slow
def test_penalty_and_scale_of_the_online_protocol():
  own = small.seeds(1)
  protocol = Online(
    optimizer=optax.sgd(0.1), batch_size=16, num_test=20, l2=0.05, init_scale=0.5
  )
  trial = protocol.trial(small.TASK, small.TASK, small.Linear())
  weights_key, data_key, *_ = jax.random.split(own.trial, 4)
  planted = small.TASK.init(own.task)
  inputs = jnp.zeros((1, 3, small.TASK.input_dim))
  params = small.Linear().init(weights_key, inputs)["params"]
  params = jax.tree.map(lambda a: 0.5 * a, params)
  for step in range(4):
    key = jax.random.fold_in(data_key, step)
    batch = small.TASK.sample(key, planted, 16)
    inputs = small.TASK.encode(planted, batch)

    def loss(params, inputs=inputs, batch=batch):
      outputs = small.Linear().apply({"params": params}, inputs)
      squares = sum(jnp.sum(a**2) for a in jax.tree.leaves(params))
      return jnp.mean((outputs - batch.labels) ** 2) + 0.05 * squares

    grads = jax.grad(loss)(params)
    params = jax.tree.map(lambda a, g: a - 0.1 * g, params, grads)
  trained = jax.jit(lambda own: trial.train(trial.init(own), trial.world(own), 4))(own)
  chex.assert_trees_all_close(trained.params, params, rtol=1e-4, atol=1e-6)


@dataclasses.dataclass(frozen=True)
class Scored(SparseBoolean):
  """Judged by the probability of the true label, against how often it was seen."""

  def score(self, apply, planted, sample, train):
    truth = self.labels(planted, sample.bits)
    logits = apply(self.encode(planted, sample))
    probability = jax.nn.softmax(logits)[jnp.arange(len(truth)), truth]
    frequency = jnp.mean(train.labels[:, None] == truth, axis=0)
    return (frequency - probability) ** 2


def plain_score(trial, world, params, sample):
  """The mean score of a sample, by a loop over its inputs."""
  logits = np.asarray(trial.model.apply({"params": params}, sample.bits))
  subset, seen = np.asarray(world.planted.subset), np.asarray(world.sample.labels)
  scores = []
  for bits, own in zip(np.asarray(sample.bits), logits, strict=True):
    truth = int(bits[subset].all())
    probability = np.exp(own[truth]) / np.exp(own).sum()
    scores.append((np.mean(seen == truth) - probability) ** 2)
  return np.mean(scores)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize(
  "num_test", [1201, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 500, 1000))]
)
def test_a_task_may_have_a_score_of_its_own(num_test):
  """Part by part where there are many samples, and the same as of all at once."""
  task = Scored(length=6, sparsity=2, noise=0.1)
  trial = small.with_protocol(TRIAL, num_test=num_test)
  trial = dataclasses.replace(trial, task=task, test_task=task)
  own = small.seeds(0)
  world, state = trial.world(own), trial.init(own)
  curve = jax.jit(trial.evaluate)(state, world).curve
  for name, sample in (("test_error", world.test), ("train_error", world.sample)):
    expected = plain_score(trial, world, state.params, sample)
    np.testing.assert_allclose(getattr(curve, name)[0], expected, rtol=1e-4)
  # The loss stays the objective's.
  loss = float(plain_loss(trial, world)(state.params))
  assert float(curve.train_loss[0]) == pytest.approx(loss, rel=1e-4)


@dataclasses.dataclass(frozen=True)
class FirstAlone(QSTR):
  """Only the first position counts."""

  def score(self, apply, planted, sample, train):
    assert train is None
    outputs = apply(self.encode(planted, sample))
    return (outputs[:, 0] - sample.labels[:, 0]) ** 2


@pytest.mark.slow
def test_a_score_in_the_online_protocol():
  test_task = FirstAlone(length=3, token_dim=2)
  trial = dataclasses.replace(
    small.with_protocol(small.TRIAL, num_test=300), test_task=test_task
  )
  own = small.seeds(0)
  world, state = trial.world(own), trial.init(own)
  measured = jax.jit(trial.evaluate)(state, world).curve.loss[0]
  inputs = small.TASK.encode(world.planted, world.test)
  outputs = np.asarray(trial.model.apply({"params": state.params}, inputs))
  errors = (outputs[:, 0] - np.asarray(world.test.labels)[:, 0]) ** 2
  np.testing.assert_allclose(measured, np.mean(errors[:300]), rtol=1e-4)


@pytest.mark.slow
def test_an_optimizer_that_takes_a_gradient_elsewhere():
  """Sharpness-aware minimisation: the gradient at rho g / |g| from here."""
  rate, rho = 0.5, 0.2
  climbing = optax.chain(optax.contrib.normalize(), optax.sgd(rho))
  sam = optax.contrib.sam(optax.sgd(rate), climbing, sync_period=2, opaque_mode=True)
  trial = small.with_protocol(TRIAL, optimizer=sam)
  own = small.seeds(0)
  world, state = trial.world(own), trial.init(own)
  gradient = jax.grad(plain_loss(trial, world))
  expected = state.params
  for _ in range(3):
    here = gradient(expected)
    norm = jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(here)))
    above = jax.tree.map(lambda a, g, norm=norm: a + rho * g / norm, expected, here)
    expected = jax.tree.map(lambda a, g: a - rate * g, expected, gradient(above))
  trained = trial.train(state, world, 3)
  chex.assert_trees_all_close(trained.params, expected, rtol=1e-4, atol=1e-6)
  *_, plain = plain_descent(plain_loss(trial, world), state.params, rate, 3)
  with pytest.raises(AssertionError):
    chex.assert_trees_all_close(trained.params, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("sgd:momentum=0.9", optax.sgd(0.3, momentum=0.9)),
    ("sgd:learning_rate=0.2:nesterov=true:momentum=0.5",
     optax.sgd(0.2, momentum=0.5, nesterov=True)),
    ("lion", optax.lion(0.3)),
    ("muon", optax.contrib.muon(0.3)),
    ("adamw", optax.adamw(0.3, weight_decay=0.4)),
    ("adamw:weight_decay=0", optax.adamw(0.3, weight_decay=0.0)),
  ],
)  # fmt: skip
def test_optimizers_by_name_are_those_of_optax(text, expected):
  own = optimizer(text, AdamW(0.3, weight_decay=0.4))
  params = {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)}
  states = own.init(params), expected.init(params)
  for k in range(3):
    grads = jax.tree.map(lambda a, k=k: jnp.cos(a + k), params)
    steps, state = own.update(grads, states[0], params)
    wanted, other = expected.update(grads, states[1], params)
    chex.assert_trees_all_close(steps, wanted, rtol=1e-6)
    states, params = (state, other), optax.apply_updates(params, steps)


def test_an_optimizer_by_name_trains_like_optaxs_own():
  named = small.with_protocol(TRIAL, optimizer=optimizer("sgd:momentum=0.9", AdamW(0.3)))
  theirs = small.with_protocol(TRIAL, optimizer=optax.sgd(0.3, momentum=0.9))
  own = small.seeds(0)
  world = TRIAL.world(own)
  ends = [trial.train(trial.init(own), world, 4).params for trial in (named, theirs)]
  chex.assert_trees_all_close(*ends, rtol=1e-6)
  assert [leaf.item() for leaf in map(np.asarray, jax.tree.leaves(named.protocol))] == [
    0.3
  ]


@pytest.mark.parametrize(
  ("text", "message"),
  [
    ("sgdd", "takes adamw, or the name of an optimizer with a learning rate"),
    ("global_norm", "takes adamw, or the name of an optimizer"),
    ("sgd:momentums=0.9", "takes the fields learning_rate, momentum"),
    ("sgd:momentum=x", "optimizer.*: got '.*x', takes .*a number"),
    ("adamw:decay=none", "takes all or kernels"),
    ("adamw:weight_decay=-1", "takes a number >= 0 as weight_decay"),
    ("sgd:learning_rate=0", "learning_rate: got 0.0"),
  ],
)
def test_bad_optimizers_are_refused(text, message):
  with pytest.raises(InvalidSetting, match=message):
    optimizer(text, AdamW())


@pytest.mark.parametrize(
  "own", [optax.lbfgs(), optimizer("momo", AdamW()), optax.adam, None]
)
def test_optimizers_that_need_more_than_gradients_are_refused(own):
  with pytest.raises(InvalidSetting, match=r"optimizer: .*gradients and param"):
    small.with_protocol(TRIAL, optimizer=own).check()

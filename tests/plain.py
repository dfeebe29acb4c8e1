"""Both protocols once more, as plain programs.

They follow what is documented, one step after the other, and evaluate every test sample
at every check. They share no code with `sepfx.tasks`, `sepfx.training` and
`sepfx.ensembles`: what those compute is held against what stands here. Initial weights
alone are the models' own.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

# Keys.


def seeds(seed, key_name, index):
  """The two keys of a trial: its own, and that of what is planted."""
  key = jax.random.key(seed)
  digest = hashlib.sha256(key_name.encode()).digest()
  for word in np.frombuffer(digest[:8], "<u4"):
    key = jax.random.fold_in(key, word)
  return jax.random.split(jax.random.fold_in(key, index))


# Tasks: `plant(key)`, then `draw(key, planted, n)` gives inputs and labels.


def subset(key, shape, length, size):
  """Ordered subsets: each next index by its rank among those that are left."""
  ranks = [
    np.asarray(jax.random.randint(own, shape, 0, length - k))
    for k, own in enumerate(jax.random.split(key, size))
  ]
  chosen = np.empty((*shape, size), int)
  for place in np.ndindex(*shape):
    left = list(range(length))
    for k in range(size):
      chosen[(*place, k)] = left.pop(int(ranks[k][place]))
  return chosen


@dataclasses.dataclass(frozen=True)
class SparseTokens:
  """q-sparse token regression with a linear link (Definition 2)."""

  length: int
  token_dim: int
  sparsity: int = 1
  alike: bool = False  # all positions name the same tokens
  prefactor: bool = False  # of the theory: codes of norm sqrt(d/q)

  def plant(self, key):
    codes_key, link_key = jax.random.split(key)
    code_dim = math.floor(5 * math.log(self.length))
    signs = jax.random.rademacher(codes_key, (self.length, code_dim), jnp.float32)
    u = np.asarray(jax.random.normal(link_key, (self.sparsity, self.token_dim)))
    return np.asarray(signs) / math.sqrt(code_dim), u / np.linalg.norm(u)

  def draw(self, key, planted, n):
    codes, u = planted
    tokens_key, indices_key = jax.random.split(key)
    N, q = self.length, self.sparsity
    x = np.asarray(jax.random.normal(tokens_key, (n, N, self.token_dim)))
    t = subset(indices_key, (n, 1 if self.alike else N), N, q)
    t = np.broadcast_to(t, (n, N, q))
    c = math.sqrt(self.token_dim / q) if self.prefactor else 1.0
    inputs, labels = [], []
    for k in range(n):
      for i in range(N):
        named = [c * codes[j] for j in t[k, i]]
        inputs.append(np.concatenate([x[k, i], c * codes[i], *named]))
        labels.append(sum(u[j] @ x[k, t[k, i, j]] for j in range(q)))
    inputs = np.array(inputs, np.float32).reshape(n, N, -1)
    return inputs, np.array(labels, np.float32).reshape(n, N)


@dataclasses.dataclass(frozen=True)
class HiddenAnd:
  """The AND of s hidden bits among T."""

  length: int
  sparsity: int

  def plant(self, key):
    return subset(key, (), self.length, self.sparsity)

  def draw(self, key, planted, n):
    bits_key, _ = jax.random.split(key)  # the other one is that of noise
    bits = np.asarray(jax.random.bernoulli(bits_key, 0.5, (n, self.length)), int)
    return bits, np.all(bits[:, planted] == 1, axis=1).astype(int)


# Models, on parameters as `sepfx.models` names them.


def dense(layer, x):
  return x @ layer["kernel"] + layer["bias"]


def transformer(params, z):
  """Attention one head at a time, then the read-out at each position."""
  query, key, value, out = (params[k] for k in ("query", "key", "value", "out"))
  mixed = out["bias"]
  for h in range(query["kernel"].shape[1]):
    q, k, v = (z @ own["kernel"][:, h] + own["bias"][h] for own in (query, key, value))
    scores = q @ jnp.swapaxes(k, 1, 2) / math.sqrt(q.shape[-1])
    mixed = mixed + jax.nn.softmax(scores) @ v @ out["kernel"][h]
  hidden = jnp.maximum(dense(params["hidden"], mixed), 0)
  return dense(params["output"], hidden)[..., 0]


def gru(params, z):
  """PyTorch's equations, one time after the other, in both directions."""
  directions = []
  for name in ("forward", "backward"):
    w_i, w_h, b_i, b_h = (
      params[f"{name}_{kind}"]
      for kind in ("input_kernel", "hidden_kernel", "input_bias", "hidden_bias")
    )
    h, states = jnp.zeros((len(z), w_h.shape[0])), []
    times = range(z.shape[1])
    for time in times if name == "forward" else reversed(times):
      of_x = jnp.split(z[:, time] @ w_i + b_i, 3, axis=1)
      of_h = jnp.split(h @ w_h + b_h, 3, axis=1)
      reset, update = (jax.nn.sigmoid(of_x[k] + of_h[k]) for k in range(2))
      new = jnp.tanh(of_x[2] + reset * of_h[2])
      h = (1 - update) * new + update * h
      states.append(h)
    directions.append(states if name == "forward" else states[::-1])
  states = jnp.concatenate([jnp.stack(own, axis=1) for own in directions], axis=-1)
  return dense(params["output"], states)[..., 0]


def feedforward_on_bits(params, bits):
  """One hidden layer on -1 and 1, two logits."""
  layers = params["model"]
  hidden = jnp.maximum(dense(layers["Dense_0"], 2.0 * bits - 1.0), 0)
  return dense(layers["Dense_1"], hidden)


# Losses of each sample, and what an optimizer does.


def squared_error(predictions, labels):
  return jnp.mean((predictions - labels) ** 2, axis=1)


def cross_entropy(logits, labels):
  logs = jax.nn.log_softmax(logits)
  return -jnp.take_along_axis(logs, labels[:, None], axis=1)[:, 0]


@dataclasses.dataclass
class Adam:
  """Adam with decoupled decay, moments and all written out."""

  params: dict
  rate: float
  decay: float
  decayed: Callable[[tuple], bool] = lambda path: True  # by the names on the way to it
  clip_norm: float = math.inf

  def __post_init__(self):
    self.steps = 0
    self.mean = jax.tree.map(np.zeros_like, self.params)
    self.square = jax.tree.map(np.zeros_like, self.params)

  def step(self, grads):
    grads = jax.tree.map(np.asarray, grads)
    norm = math.sqrt(sum(np.sum(g**2) for g in jax.tree.leaves(grads)))
    factor = min(1.0, self.clip_norm / norm)
    self.steps += 1

    def move(path, own, mean, square, grad):
      names = tuple(entry.key for entry in path)
      mean[...] = 0.9 * mean + 0.1 * factor * grad
      square[...] = 0.999 * square + 0.001 * (factor * grad) ** 2
      unbiased = mean / (1 - 0.9**self.steps), square / (1 - 0.999**self.steps)
      change = unbiased[0] / (np.sqrt(unbiased[1]) + 1e-8)
      return own - self.rate * (change + self.decay * self.decayed(names) * own)

    moments = self.mean, self.square
    self.params = jax.tree_util.tree_map_with_path(move, self.params, *moments, grads)


def initial(module, key, inputs):
  params = module.init(key, inputs)["params"]
  return jax.tree.map(np.array, params)


# Protocols.


@dataclasses.dataclass(frozen=True)
class FreshPrompts:
  """A fresh batch for each step; the test loss after every few of them."""

  task: SparseTokens
  test_task: SparseTokens
  module: object  # draws the initial weights
  model: Callable
  rate: float
  decay: float
  batch_size: int
  check_every: int
  num_test: int
  thresholds: tuple
  max_samples: int

  @jax.default_matmul_precision("float32")
  def run(self, trial_key, task_key):
    """Returns the test losses, and the samples at each first passage (None for none)."""
    weights_key, data_key, test_key, _ = jax.random.split(trial_key, 4)
    planted = self.task.plant(task_key)
    test_inputs, test_labels = self.test_task.draw(test_key, planted, self.num_test)
    start = initial(self.module, weights_key, test_inputs[:1])
    adam = Adam(start, self.rate, self.decay)

    def loss(params, inputs, labels):
      return jnp.mean(squared_error(self.model(params, inputs), labels))

    gradient, evaluate = jax.jit(jax.grad(loss)), jax.jit(loss)
    losses, first, steps = [], dict.fromkeys(self.thresholds), 0
    while None in first.values():
      if (steps + self.check_every) * self.batch_size > self.max_samples:
        break
      for _ in range(self.check_every):
        key = jax.random.fold_in(data_key, steps)
        batch = self.task.draw(key, planted, self.batch_size)
        adam.step(gradient(adam.params, *batch))
        steps += 1
      losses.append(float(evaluate(adam.params, test_inputs, test_labels)))
      for threshold in self.thresholds:
        if losses[-1] < threshold and first[threshold] is None:
          first[threshold] = steps * self.batch_size
    return np.array(losses), first


@dataclasses.dataclass(frozen=True)
class FixedSample:
  """Batches of one sample, in another order in each epoch."""

  task: HiddenAnd
  module: object
  model: Callable
  rate: float
  decay: float
  clip_norm: float
  sample_size: int
  batch_size: int
  check_every: int
  num_test: int
  threshold: float
  max_steps: int

  @jax.default_matmul_precision("float32")
  def run(self, trial_key, task_key):
    """Returns the curve and the steps at which the test error was first below (or None).

    The curve is test error, train error, train loss and test loss at each check.
    """
    weights_key, data_key, test_key, _ = jax.random.split(trial_key, 4)
    sample_key, order_key = jax.random.split(data_key)
    planted = self.task.plant(task_key)
    bits, labels = self.task.draw(sample_key, planted, self.sample_size)
    test = self.task.draw(test_key, planted, self.num_test)
    start = initial(self.module, weights_key, bits[:1])
    adam = Adam(
      start, self.rate, self.decay, lambda names: names[-1] == "kernel", self.clip_norm
    )

    @jax.jit
    @jax.grad
    def gradient(params, bits, labels):
      return jnp.mean(cross_entropy(self.model(params, bits), labels))

    def measured(bits, labels):
      logits = self.model(adam.params, bits)
      wrong = np.argmax(logits, axis=1) != labels
      return np.mean(wrong), np.mean(cross_entropy(logits, labels))

    curve, batches = [], self.sample_size // self.batch_size
    for step in range(self.max_steps):
      epoch, place = divmod(step, batches)
      if place == 0:
        order = shuffled(jax.random.fold_in(order_key, epoch), self.sample_size)
      chosen = order[place * self.batch_size : (place + 1) * self.batch_size]
      adam.step(gradient(adam.params, bits[chosen], labels[chosen]))
      if (step + 1) % self.check_every == 0:
        (on_test, test_loss), on_train = measured(*test), measured(bits, labels)
        curve.append((on_test, *on_train, test_loss))
        if on_test < self.threshold:
          return np.array(curve), step + 1
    return np.array(curve), None


def shuffled(key, m):
  """The swap-or-not shuffle of 0, ..., m - 1, one number and one round at a time."""

  def hashed(word):
    word = (word ^ word >> 16) * 0x7FEB352D % 2**32
    word = (word ^ word >> 15) * 0x846CA68B % 2**32
    return word ^ word >> 16

  rounds = 6 * max(1, math.ceil(math.log2(m)))
  words = np.asarray(jax.random.bits(key, (rounds, 3))).tolist()
  order = []
  for x in range(m):
    for shift, first, second in words:
      partner = (shift - x) % m
      coin = hashed(hashed((max(x, partner) + first) % 2**32) ^ second)
      x = partner if coin >= 2**31 else x
    order.append(x)
  return order

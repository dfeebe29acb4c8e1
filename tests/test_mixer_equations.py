"""The layers of mixers beside their equations, token by token, in plain numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.models.mixers import MIXERS

pytestmark = pytest.mark.usefixtures("exact")

WIDTH, N, H = 8, 7, 2


def sigmoid(x):
  return 1 / (1 + np.exp(-x))


def silu(x):
  return x * sigmoid(x)


def softplus(x):
  return np.log1p(np.exp(x))


def gelu(x):
  return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def dense(own, x):
  return x @ own["kernel"] + own.get("bias", 0.0)


def convolved(own, x):
  """Each feature over the tokens so far, the last kernel row for the current one."""
  size = len(own["kernel"])
  found = np.zeros_like(x)
  for i in range(len(x)):
    for k in range(size):
      j = i - (size - 1 - k)
      if j >= 0:
        found[i] += own["kernel"][k] * x[j]
  return found + own.get("bias", 0.0)


def normalised(x):
  return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def unit(x):
  return x / np.sqrt(np.sum(x**2, axis=-1, keepdims=True) + 1e-6)


def heads(x):
  return x.reshape(N, H, -1)


def linear_attention(own, x, feature, name="query"):
  query, key = (feature(heads(dense(own[part], x))) for part in (name, "key"))
  value = heads(dense(own["value"], x))
  found = np.zeros_like(value)
  for i in range(N):
    for h in range(H):
      weights = np.array([query[i, h] @ key[j, h] for j in range(i + 1)])
      found[i, h] = weights @ value[: i + 1, h] / weights.sum()
  return dense(own["output"], found.reshape(N, -1))


def of_linear_attention(own, x):
  return linear_attention(own, x, lambda u: np.where(u > 0, u + 1, np.exp(u)))


def of_based(own, x):
  """Scores 1 + s + s^2 / 2 of s = q k / sqrt(F)."""
  query, key = (heads(dense(own[part], x)) for part in ("query", "key"))
  value = heads(dense(own["value"], x))
  found = np.zeros_like(value)
  for i in range(N):
    for h in range(H):
      scores = key[: i + 1, h] @ query[i, h] / np.sqrt(query.shape[-1])
      weights = 1 + scores + scores**2 / 2
      found[i, h] = weights @ value[: i + 1, h] / weights.sum()
  return dense(own["output"], found.reshape(N, -1))


def of_gla(own, x):
  query, key, value = (heads(dense(own[k], x)) for k in ("query", "key", "value"))
  decay = heads(sigmoid(dense(own["decay_up"], dense(own["decay_down"], x))) ** (1 / 16))
  gate = silu(heads(dense(own["gate"], x)))
  found = np.zeros_like(value)
  for h in range(H):
    S = np.zeros((key.shape[-1], value.shape[-1]))
    for i in range(N):
      S = decay[i, h][:, None] * S + np.outer(key[i, h], value[i, h])
      found[i, h] = S.T @ query[i, h] / np.sqrt(key.shape[-1])
  read = normalised(found) * own["scale"] * gate
  return dense(own["output"], read.reshape(N, -1))


def of_delta(own, x, most=1.0, gated=False):
  parts = (dense(own[k], x) for k in ("query", "key", "value"))
  query, key, value = (
    heads(silu(convolved(own[f"convolutions_{k}"], part))) for k, part in enumerate(parts)
  )
  query, key = unit(query), unit(key)
  beta = most * sigmoid(dense(own["beta"], x))
  left = np.ones((N, H))
  if gated:
    steps = softplus(dense(own["steps"], x) + own["step_bias"])
    left = np.exp(-np.exp(own["log_rate"]) * steps)
  found = np.zeros_like(value)
  for h in range(H):
    S = np.zeros((key.shape[-1], value.shape[-1]))
    for i in range(N):
      S = left[i, h] * S
      S = S + np.outer(key[i, h], beta[i, h] * (value[i, h] - S.T @ key[i, h]))
      found[i, h] = S.T @ query[i, h] / np.sqrt(key.shape[-1])
  read = (normalised(found) * own["scale"]).reshape(N, -1)
  if gated:
    read = read * silu(dense(own["gate"], x))
  return dense(own["output"], read)


def of_gated_delta(own, x):
  return of_delta(own, x, gated=True)


def of_mamba2(own, x):
  inner, state = 2 * WIDTH, 64
  gate, values, keys, queries, steps = np.split(
    dense(own["input"], x), np.cumsum([inner, inner, state, state]), axis=-1
  )
  values, keys, queries = (
    silu(convolved(own[f"convolutions_{k}"], part))
    for k, part in enumerate((values, keys, queries))
  )
  steps = softplus(steps + own["step_bias"])
  values = heads(values)
  found = np.zeros_like(values)
  for h in range(H):
    S = np.zeros((state, values.shape[-1]))
    for i in range(N):
      left = np.exp(-np.exp(own["log_rate"][h]) * steps[i, h])
      S = left * S + np.outer(keys[i], steps[i, h] * values[i, h])
      found[i, h] = S.T @ queries[i] + own["skip"][h] * values[i, h]
  read = normalised(found.reshape(N, -1) * silu(gate)) * own["scale"]
  return dense(own["output"], read)


def of_rwkv7(own, x):
  before = np.concatenate([np.zeros((1, WIDTH)), x[:-1]])
  mixed = {
    part: x + (before - x) * own[f"mixed_{part}"]
    for part in ("query", "decay", "key", "value", "rate", "gate")
  }
  query, key, value = (
    dense(own[part], mixed[part]) for part in ("query", "key", "value")
  )

  def low_rank(part, between):
    return dense(own[f"{part}_up"], between(dense(own[f"{part}_down"], mixed[part])))

  log_decay = -np.exp(-0.5) * sigmoid(low_rank("decay", np.tanh) + own["decay_bias"])
  rate = sigmoid(low_rank("rate", lambda u: u) + own["rate_bias"])
  removed = heads(key * own["removed"])
  removed = removed / np.linalg.norm(removed, axis=-1, keepdims=True)
  query, value, rate, left = (heads(u) for u in (query, value, rate, np.exp(log_decay)))
  key = heads(key) * (1 + (rate - 1) * own["replaced"].reshape(H, -1))
  found = np.zeros_like(value)
  for h in range(H):
    S = np.zeros((WIDTH // H, WIDTH // H))
    for i in range(N):
      taken = np.outer(rate[i, h] * removed[i, h], removed[i, h] @ S)
      S = left[i, h][:, None] * S - taken + np.outer(key[i, h], value[i, h])
      found[i, h] = S.T @ query[i, h]
  apart = found - found.mean(axis=-1, keepdims=True)
  spread = np.sqrt(np.mean(apart**2, axis=-1, keepdims=True) + WIDTH / H * 1e-5)
  read = apart / spread * own["scale"] + own["bias"]
  read = read + np.sum(query * key * own["bonus"], axis=-1, keepdims=True) * value
  return dense(own["output"], read.reshape(N, -1) * low_rank("gate", sigmoid))


def of_rg_lru(own, x):
  u = convolved(own["convolve"], dense(own["input"], x))

  def gate(name):
    blocks = u.reshape(N, H, -1)
    mixed = np.stack([blocks[:, h] @ own[f"{name}_kernel"][h] for h in range(H)], axis=1)
    return sigmoid(mixed.reshape(N, -1) + own[f"{name}_bias"])

  decay = np.exp(-8 * gate("decay_gate") * softplus(own["radii"]))
  gated = gate("input_gate") * u
  h, states = gated[0], [gated[0]]
  for i in range(1, N):
    h = decay[i] * h + np.sqrt(1 - decay[i] ** 2) * gated[i]
    states.append(h)
  return dense(own["output"], gelu(dense(own["gate"], x)) * np.array(states))


def of_min_gru(own, x):
  gate, candidate = sigmoid(dense(own["gate"], x)), dense(own["candidate"], x)
  h, states = np.zeros(WIDTH), []
  for i in range(N):
    h = (1 - gate[i]) * h + gate[i] * candidate[i]
    states.append(h)
  return dense(own["output"], np.array(states))


def of_gru(own, x):
  h, states = np.zeros(WIDTH), []
  for row in x:
    of_x = np.split(row @ own["input_kernel"] + own["input_bias"], 3)
    of_h = np.split(h @ own["hidden_kernel"] + own["hidden_bias"], 3)
    r, z = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
    h = (1 - z) * np.tanh(of_x[2] + r * of_h[2]) + z * h
    states.append(h)
  return dense(own["output"], np.array(states))


def of_base_convolution(own, x):
  return convolved(own["convolve"], x) * dense(own["projection"], x) + x


def of_long_convolution(own, x, most=9):
  place = np.arange(N)
  angles = 1e-4 * 2 * np.pi * place / most
  features = np.stack([place / (most - 1), np.cos(angles), -np.sin(angles)], axis=-1)
  weights = dense(own["narrow"], np.maximum(dense(own["widen"], features), 0))
  mixed = np.array([sum(weights[i - j] * x[j] for j in range(i + 1)) for i in range(N)])
  return (mixed + x) * dense(own["projection"], x) + x


def of_hyena(own, x):
  first, second, value = np.split(
    convolved(own["convolve"], dense(own["input"], x)), 3, -1
  )
  place = np.arange(N)
  angles = 1e-4 * 2 * np.pi * place / N
  weights = np.stack([place / (N - 1), np.cos(angles), -np.sin(angles)], axis=-1)
  for k in range(3):
    weights = np.sin(own["frequency"] * dense(own[f"layers_{k}"], weights))
  rates = np.linspace(np.log(100) / 1.5, np.log(100) / 0.3, WIDTH)
  weights = dense(own["last"], weights) * np.exp(-np.outer(place / (N - 1), rates))
  v = value * first
  mixed = np.array([sum(weights[i - j] * v[j] for j in range(i + 1)) for i in range(N)])
  return dense(own["output"], (mixed + v * own["skip"]) * second)


EQUATIONS = {
  "linear_attention": of_linear_attention, "based": of_based, "gla": of_gla,
  "delta": of_delta, "gated_delta": of_gated_delta, "mamba2": of_mamba2,
  "rwkv7": of_rwkv7, "base_convolution": of_base_convolution, "rg_lru": of_rg_lru,
  "min_gru": of_min_gru, "gru": of_gru, "hyena": of_hyena,
}  # fmt: skip


def outputs(name, **fields):
  """Of a mixer with drawn weights of all kinds, and of its weights and inputs."""
  has_heads = "num_heads" in MIXERS[name].__dataclass_fields__
  fields = {"num_heads": H, **fields} if has_heads else fields
  with jax.enable_x64(True):
    mixer = MIXERS[name](width=WIDTH, param_dtype="float64", **fields)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1, N, WIDTH))
    own = mixer.init(jax.random.key(0), jnp.asarray(rows))["params"]
    # Not zeros and ones, which would hide a bias or a scale.
    own = jax.tree.map(lambda a: np.asarray(a) + 0.1 * rng.normal(size=a.shape), own)
    found = mixer.apply({"params": own}, jnp.asarray(rows))
  return np.asarray(found[0]), own, rows[0]


def test_all_but_attention_have_their_equations_here():
  assert {*EQUATIONS, "attention"} == {*MIXERS}


@pytest.mark.parametrize("name", EQUATIONS)
def test_layers_are_their_equations(name):
  found, own, rows = outputs(name)
  np.testing.assert_allclose(found, EQUATIONS[name](own, rows), rtol=1e-9, atol=1e-10)


def test_a_negative_delta_rule_replaces_up_to_twice():
  found, own, rows = outputs("delta", negative=True)
  np.testing.assert_allclose(found, of_delta(own, rows, most=2.0), atol=1e-10)


def test_a_long_filter_is_made_of_places():
  found, own, rows = outputs("base_convolution", length=9)
  np.testing.assert_allclose(found, of_long_convolution(own, rows), atol=1e-10)


def test_initial_rates_are_in_their_published_ranges():
  rows = jnp.zeros((1, 3, 64))

  def drawn(name, **fields):
    mixer = MIXERS[name](width=64, **fields)
    return mixer.init(jax.random.key(0), rows)["params"]

  for name in ("mamba2", "gated_delta"):
    own = drawn(name, num_heads=32)
    rates, steps = np.exp(own["log_rate"]), softplus(np.asarray(own["step_bias"]))
    assert np.all((rates > (1 if name == "mamba2" else 0)) & (rates < 16))
    assert rates.max() > 12
    assert np.all((steps > 0.9e-3) & (steps < 1.1e-1))
    assert np.std(np.log(steps)) > 1  # log-uniform over two decades
  own = drawn("rwkv7", num_heads=2)
  decays = np.exp(-np.exp(-0.5) * sigmoid(np.asarray(own["decay_bias"])))
  assert np.all((decays > np.exp(-np.exp(-0.5))) & (decays < 1))
  assert decays[0] > 0.99 > 0.6 > decays[-1]  # at first some numbers keep, some forget
  assert not np.any(own["decay_down"]["kernel"])
  kernel = np.asarray(own["key"]["kernel"])
  np.testing.assert_allclose(kernel.T @ kernel, 0.01 * np.eye(64), atol=1e-6)
  own = drawn("rg_lru", num_heads=4)
  radii = np.exp(-softplus(np.asarray(own["radii"])))
  assert np.all((radii > 0.899) & (radii < 0.9991))
  assert np.std(own["input_gate_kernel"]) == pytest.approx(1 / 8, rel=0.1)
  assert np.std(own["convolve"]["kernel"]) == pytest.approx(0.05, rel=0.2)
  assert np.all(own["convolve"]["bias"] == 0)

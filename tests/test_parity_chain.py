"""Chains of parities: task, own chains, the causal Transformer, and the probe."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx import InvalidSetting, measure, probes
from sepfx.models import CausalTransformer, build
from sepfx.tasks import BitsAndSteps, ParityChain, UnseenChains
from sepfx.tasks.fourier import all_bits
from sepfx.training import ERM, AdamW
from tests import small

KEY = jax.random.key(0)


def loosened(params, size=0.3):
  """Larger weights than the first, so that attention is far from uniform."""
  generator = np.random.default_rng(0)
  return jax.tree.map(
    lambda a: a + size * generator.normal(size=a.shape).astype(np.float32), params
  )


def causal(tokens, num_read, seed=0, **fields):
  """Parameters of a model and the function that they make of tokens."""
  model = CausalTransformer(num_read=num_read, **fields)
  params = loosened(jax.jit(model.init)(jax.random.key(seed), tokens)["params"])
  return params, jax.jit(lambda own: model.apply({"params": params}, own))


# The task.


@pytest.mark.parametrize("mode", ["chain", "one_pass"])
def test_labels_and_tokens_are_the_chain(mode):
  task = ParityChain(length=7, mode=mode)
  sample = task.sample(KEY, task.init(KEY), 200)
  tokens = np.asarray(task.encode((), sample))
  for bits, labels, own in zip(
    *(np.asarray(a).tolist() for a in sample), tokens.tolist(), strict=True
  ):
    chain = [sum(bits[:i]) % 2 for i in range(1, 8)]  # c_1, ..., c_T
    assert labels == (chain[1:] if mode == "chain" else chain[-1:])
    assert own == bits + (chain[:-1] if mode == "chain" else chain[:1])
  assert len({tuple(bits) for bits in np.asarray(sample.bits).tolist()}) > 80
  np.testing.assert_allclose(np.mean(sample.bits), 0.5, atol=0.06)


def test_both_modes_have_the_same_strings_and_the_same_answers():
  chain, one_pass = (
    ParityChain(length=9, mode=mode).sample(KEY, (), 50) for mode in ("chain", "one_pass")
  )
  np.testing.assert_array_equal(chain.bits, one_pass.bits)
  np.testing.assert_array_equal(chain.labels[:, -1:], one_pass.labels)


def one_by_one(apply, bits):
  """Greedy decoding: a pass for each token, and nothing known of the later ones."""
  n, T = bits.shape
  labels = np.zeros((n, T - 1), int)
  for i in range(T - 1):
    tokens = np.concatenate([bits, bits[:, :1], labels[:, :-1]], axis=1)
    labels[:, i] = np.argmax(apply(tokens)[:, i], axis=-1)
  return labels


@pytest.mark.slow
def test_own_chains_are_decoded_one_by_one():
  bits = all_bits(6)
  task = ParityChain(length=6)
  true = BitsAndSteps(bits, jnp.cumsum(bits, axis=1)[:, 1:] % 2)
  _, apply = causal(task.encode((), true), 5)
  expected = one_by_one(apply, bits)
  # A model that errs, and that looks at its own tokens.
  assert 0.1 < np.mean(expected != true.labels) < 0.9
  told = np.argmax(apply(task.encode((), true)), axis=-1)
  assert np.any(told != expected)
  decoded = jax.jit(lambda sample: task.decoded(apply, sample))
  for labels in (true.labels, jnp.zeros_like(true.labels)):
    np.testing.assert_array_equal(decoded(BitsAndSteps(bits, labels)), expected)


def test_passes_are_no_more_than_there_are_tokens():
  """A map without a fixed point, which no causal model is."""
  task = ParityChain(length=5)
  passes = []

  def apply(tokens):
    jax.debug.callback(lambda: passes.append(1))
    return jax.nn.one_hot(1 - tokens[:, -4:], 2)

  sample = BitsAndSteps(jnp.zeros((1, 5), int), jnp.zeros((1, 4), int))
  jax.block_until_ready(task.decoded(apply, sample))
  jax.effects_barrier()
  assert len(passes) == 4


def test_unseen_chains_are_scored_on_the_answers_of_their_own():
  task = UnseenChains(length=6)
  bits = all_bits(6)
  sample = BitsAndSteps(bits, jnp.cumsum(bits, axis=1)[:, 1:] % 2)
  training = task.sample(jax.random.key(1), (), 40)
  _, apply = causal(task.encode((), sample), 5)
  own = one_by_one(apply, bits)
  seen = {tuple(b) for b in np.asarray(training.bits).tolist()}
  wrong = {
    tuple(b): float(chain[-1] != sum(b) % 2)
    for b, chain in zip(np.asarray(bits).tolist(), own.tolist(), strict=True)
  }
  unseen = [error for b, error in wrong.items() if b not in seen]
  assert 0 < np.mean(unseen) < 1
  errors = task.score(apply, (), sample, training)
  np.testing.assert_allclose(np.mean(errors), np.mean(unseen), rtol=1e-6)
  fresh = task.score(apply, (), sample, None)
  np.testing.assert_array_equal(fresh, list(wrong.values()))


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"length": 1}, "length: got 1, takes an integer from 2 to 30"),
    ({"length": 31}, "length: got 31"),
    ({"mode": "steps"}, "mode: got 'steps', takes chain or one_pass"),
  ],
)
def test_bad_tasks_are_refused(settings, message):
  with pytest.raises(InvalidSetting, match=message):
    ParityChain(**settings)


# The model.


def plain_causal(params, tokens, model):
  """The Transformer row by row in NumPy: each row is given those up to it alone."""
  f = lambda a: np.asarray(a, float)  # noqa: E731
  n, S = tokens.shape
  x = np.concatenate(
    [np.tile(np.eye(S), (n, 1, 1)), f(params["embedding"])[tokens]], axis=-1
  )

  def dense(rows, layer):
    return rows @ f(layer["kernel"]) + f(layer["bias"])

  for k in range(model.num_layers):
    block = params[f"block_{k}"]
    rows = []
    for s in range(S):
      read = 0
      for h in range(model.num_heads):
        query, key, value = (
          x[:, : s + 1] @ f(block[f"{a}_kernel"])[:, h] for a in ("query", "key", "value")
        )
        scores = math.log(S - 1) * np.einsum("ne,nse->ns", query[:, -1], key)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("ns,nse->ne", weights, value)
        read = read + mixed @ f(block["out_kernel"])[h]
      row = x[:, s] + read
      hidden = np.maximum(dense(row, block["mlp_in"]), 0)
      rows.append(row + dense(hidden, block["mlp_out"]))
    x = np.stack(rows, axis=1)
  return dense(x[:, -model.num_read :], params["read_out"])


FIELDS = [
  {"num_read": 4},
  {"num_read": 1, "num_layers": 1},
  {"num_read": 9, "num_layers": 3, "num_heads": 2, "embedding_dim": 3, "mlp_width": 9},
]


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("fields", FIELDS, ids=str)
def test_it_is_the_plain_transformer(fields):
  model = CausalTransformer(**fields)
  tokens = np.random.default_rng(0).integers(0, 2, (20, 9))
  params = jax.jit(model.init)(KEY, tokens)["params"]
  params = loosened(params, 0.15)
  got = jax.jit(model.apply)({"params": params}, tokens)
  expected = plain_causal(params, tokens, model)
  assert got.shape == (20, model.num_read, 2)
  assert np.std(expected) > 0.01
  np.testing.assert_allclose(got, expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("num_layers", [1, 2, 3])
def test_a_later_token_changes_no_earlier_row(num_layers):
  tokens = np.random.default_rng(0).integers(0, 2, (30, 9))
  _, apply = causal(tokens, 9, num_layers=num_layers)
  before = np.asarray(apply(tokens))
  for place in range(9):
    other = tokens.copy()
    other[:, place] = 1 - other[:, place]
    change = np.abs(apply(other) - before).max(axis=(0, 2))
    assert np.all(change[:place] == 0)
    assert np.all(change[place:] > 1e-4)  # each row sees all up to it


def test_the_published_name_reads_a_row_for_each_label():
  for mode, rows in (("chain", 5), ("one_pass", 1)):
    task = ParityChain(length=6, mode=mode)
    assert build("transformer:num_heads=2", task) == CausalTransformer(rows, num_heads=2)


@pytest.mark.parametrize(
  ("fields", "message"),
  [
    ({"num_layers": 0}, "num_layers: got 0"),
    ({"num_heads": 5}, "num_heads: got 5, takes a divisor of the width 36"),
    ({"num_read": 7}, "num_read: got 7, takes an integer from 1 to 6"),
  ],
)
def test_bad_models_are_refused(fields, message):
  with pytest.raises(InvalidSetting, match=message):
    CausalTransformer(**fields).init(KEY, jnp.zeros((1, 6), int))


# Training, and the probe.


def trial_of(mode, length=6, **settings):
  task = ParityChain(length=length, mode=mode)
  protocol = ERM(**{"sample_size": 20, "threshold": 0.1, "num_test": 64, **settings})
  unseen = UnseenChains(length=length, mode=mode)
  return protocol.trial(task, unseen, build("transformer", task))


@pytest.mark.slow
@pytest.mark.parametrize(
  "mode", ["chain", pytest.param("one_pass", marks=pytest.mark.slow)]
)
def test_probe_is_of_steps_and_of_own_chains(mode):
  trial = trial_of(mode)

  @jax.jit
  def probed(seeds):
    world = trial.world(seeds)
    params = loosened(trial.init(seeds).params, 0.2)
    return world, params, probes.chain(trial, params, world, KEY)

  world, params, found = probed(small.seeds(0))
  test = jax.tree.map(np.asarray, world.test)

  def apply(tokens):
    return plain_causal(params, np.asarray(tokens), trial.model)

  seen = {tuple(b) for b in np.asarray(world.sample.bits).tolist()}
  unseen = np.array([tuple(b) not in seen for b in test.bits.tolist()])
  assert 0.3 < np.mean(unseen) < 1
  scale = 64 * (1 - len(seen) / 64)
  steps = np.argmax(apply(trial.task.encode((), test)), axis=-1)
  wrong = np.mean(steps != test.labels, axis=1)
  step_error = np.sum(wrong[unseen]) / scale
  assert found["step_error"] == pytest.approx(step_error, rel=1e-5)
  if mode == "chain":
    steps = one_by_one(apply, test.bits)
  answers = steps[:, -1] != test.labels[:, -1]
  chain_error = np.sum(answers[unseen]) / scale
  assert found["chain_error"] == pytest.approx(chain_error, rel=1e-5)
  number = 5 if mode == "chain" else 1
  assert found["union_bound"] == pytest.approx(number * step_error, rel=1e-5)
  assert 0 < chain_error <= number * step_error


def test_the_probe_is_of_unseen_chains():
  protocol = ERM(sample_size=4, threshold=0.1, num_test=50)
  trial = protocol.trial(small.TASK, small.TASK, small.Linear())
  with pytest.raises(
    InvalidSetting, match="chain of qstr', takes a trial that is tested"
  ):
    probes.combined("chain", [trial])


@pytest.mark.slow
def test_a_chain_is_learned_from_few_strings():
  protocol = ERM(
    sample_size=128, threshold=0.1, num_test=256, max_steps=600, check_every=50,
    batch_size=64, optimizer=AdamW(1e-3),
  )  # fmt: skip
  records = measure(
    ParityChain(length=8), "transformer", 8, protocol, num_trials=2,
    test_task=UnseenChains(length=8), probes="chain",
  )  # fmt: skip
  assert set(records.table["outcome"]) == {"reached"}
  for row, curve in zip(records.probes, records.all_curves.values(), strict=True):
    assert row["chain_error"] == pytest.approx(curve["test_error"][-1], abs=1e-6)
    assert row["chain_error"] <= row["union_bound"] + 1e-6

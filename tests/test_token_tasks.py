"""Tasks of tokens: what they draw, beside their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import sepfx
from sepfx import Online
from sepfx.errors import InvalidSetting
from sepfx.models.mixers import Backbone
from sepfx.tasks.tokens import (
  MQAR,
  Copying,
  Dyck,
  FuzzyRecall,
  InContextRecall,
  InductionHeads,
  KHop,
  Memorisation,
  SelectiveCopying,
  Sequences,
  WordProblem,
  token_objective,
)
from sepfx.tasks.tokens.recall import distinct
from sepfx.tasks.tokens.states import multiplication


def test_objective_is_of_the_answers_alone():
  logits = jnp.log(jnp.array([[[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]] * 2))
  labels = jnp.array([[0, 0], [1, -1]])
  own = token_objective(3)
  losses = own.loss(logits, labels)
  np.testing.assert_allclose(losses, -np.log([np.sqrt(0.5 * 0.1), 0.25]), rtol=1e-6)
  np.testing.assert_allclose(own.error(logits, labels), [0.5, 1.0])
  assert own.output_shape((7, 2)) == (7, 2, 3)
  nothing = own.loss(logits, jnp.full((2, 2), -1))
  np.testing.assert_allclose(nothing, 0.0)


def test_distinct_numbers_are_all_orders_alike():
  found = np.asarray(distinct(jax.random.key(0), (20_000, 2), 4))
  assert set(found.ravel().tolist()) == set(range(4))
  assert np.all(found[:, 0] != found[:, 1])
  _, counts = np.unique(found, axis=0, return_counts=True)
  assert len(counts) == 12
  assert scipy.stats.chisquare(counts).pvalue > 1e-3
  whole = np.sort(np.asarray(distinct(jax.random.key(1), (50, 6), 6)), axis=1)
  assert np.all(whole == np.arange(6))


@pytest.mark.parametrize("random_rest", [False, True])
def test_mqar_asks_for_the_value_of_each_key(random_rest):
  task = MQAR(length=32, num_pairs=5, vocabulary=64, random_rest=random_rest)
  tokens, asked, labels = map(np.asarray, task.draw(jax.random.key(0), 200))
  assert tokens.shape == (200, 32)
  assert tokens.min() >= 0
  assert tokens.max() < 64
  keys, values = tokens[:, 0:10:2], tokens[:, 1:10:2]
  assert np.all((keys >= 1) & (keys < 32))
  assert np.all((values >= 32) & (values < 64))
  for row in range(200):
    assert len(set(keys[row])) == len(set(values[row])) == len(set(asked[row])) == 5
    value_of = dict(zip(keys[row].tolist(), values[row].tolist(), strict=True))
    there = tokens[row, asked[row]].tolist()
    assert [value_of[key] for key in there] == labels[row].tolist()
  assert np.all((asked >= 10) & (asked % 2 == 0))
  rest = np.ones(tokens.shape, bool)
  rest[:, :10] = False
  np.put_along_axis(rest, asked, False, axis=1)
  assert np.all(tokens[rest] == 0) != random_rest


@pytest.mark.parametrize("power", [0.01, 1.0])
def test_distances_of_mqar_are_those_of_numbers_drawn_one_by_one(power):
  """With the weights of the published generator, no two alike."""
  task = MQAR(length=24, num_pairs=3, vocabulary=64, power=power)
  n, places = 20_000, 9
  asked = np.asarray(task.draw(jax.random.key(0), n).asked)
  gaps = (asked - 6) // 2
  weights = np.arange(1, places + 1) ** (power - 1)
  weights /= weights.sum()
  first = np.bincount(gaps[:, 0], minlength=places)
  assert scipy.stats.chisquare(first, n * weights).pvalue > 1e-3
  # Given the first, the second is one of the others.
  left = np.where(np.eye(places, dtype=bool), 0, weights)
  second = weights @ (left / left.sum(axis=1, keepdims=True))
  found = np.bincount(gaps[:, 1], minlength=places)
  assert scipy.stats.chisquare(found, n * second).pvalue > 1e-3


@pytest.mark.parametrize(
  ("sizes", "random_rest"),
  [
    ({1: 8, 2: 20, 3: 24}, False),
    ({1: 8, 2: 20, 3: 24}, True),
    ({1: 12, 2: 24, 3: 16}, False),
  ],
)
def test_mixed_lengths_are_sequences_of_each(sizes, random_rest):
  """As many of each as there are of it in the text, and drawn as those of one length."""
  n = 12_000
  settings = {"vocabulary": 64, "power": 0.5, "random_rest": random_rest}
  mixed = "+".join(f"{sizes[P]}x{P}" for P in (1, 1, 2, 3))
  task = MQAR(length=24, num_pairs=3, mixed=mixed, **settings)
  tokens, asked, labels = map(np.asarray, task.draw(jax.random.key(0), n))
  pairs = np.sum(labels >= 0, axis=1)
  found = np.bincount(pairs)[1:]
  assert scipy.stats.chisquare(found, n * np.array([2, 1, 1]) / 4).pvalue > 1e-3
  for P, N in sizes.items():
    rows, own = tokens[pairs == P], (labels[pairs == P, :P], asked[pairs == P, :P])
    assert np.all(labels[pairs == P, P:] == -1)
    assert np.all(rows[:, N:] == 0)
    assert np.all(own[1] < N)
    keys, values = rows[:, 0 : 2 * P : 2], rows[:, 1 : 2 * P : 2]
    np.testing.assert_array_equal(np.take_along_axis(rows, own[1], axis=1), keys)
    np.testing.assert_array_equal(own[0], values)
    alone = MQAR(length=N, num_pairs=P, **settings).draw(jax.random.key(P), len(rows))
    for place in range(P):
      counts = [
        np.bincount(each[:, place], minlength=N)[2 * P : N : 2]
        for each in (own[1], np.asarray(alone.asked))
      ]
      assert scipy.stats.chi2_contingency(counts).pvalue > 1e-3
    rest = np.ones(rows.shape, bool)
    rest[:, : 2 * P] = rest[:, N:] = False
    np.put_along_axis(rest, own[1], False, axis=1)
    assert np.all(rows[rest] == 0) != random_rest


def test_a_mixture_of_one_is_that_one():
  key, _ = jax.random.split(jax.random.key(0))
  alone = MQAR(length=24, num_pairs=3, vocabulary=64).draw(key, 50)
  mixed = MQAR(length=24, num_pairs=3, vocabulary=64, mixed="24x3")
  jax.tree.map(np.testing.assert_array_equal, mixed.draw(jax.random.key(0), 50), alone)


@pytest.mark.parametrize(
  ("fields", "what"),
  [
    ({"mixed": "64"}, r"mixed: got '64', .*32x4\+64x8, the largest of them 64 and 4"),
    ({"mixed": "64x4+"}, "mixed"),
    ({"mixed": "32x4"}, "mixed"),
    ({"mixed": "64x4+8x3"}, "num_pairs: got 3, takes .* 1 to 2"),
    ({"length": 63}, "length"),
    ({"num_pairs": 17}, "num_pairs"),
    ({"vocabulary": 64}, "vocabulary"),
    ({"vocabulary": 101}, "vocabulary"),
    ({"power": 0.0}, "power"),
  ],
)
def test_bad_settings_of_mqar_are_refused(fields, what):
  with pytest.raises(InvalidSetting, match=what):
    MQAR(**fields)


def test_a_model_that_gives_no_logits_is_refused():
  task = MQAR(length=8, num_pairs=1, vocabulary=10)
  with pytest.raises(InvalidSetting, match=r"\[2, 8\] and \[2, 1\].*\[2, 1, 10\]"):
    sepfx.measure(task, Backbone(vocabulary=10, num_outputs=3), 8, num_trials=1)


@pytest.mark.slow
@pytest.mark.parametrize("mixer", ["attention", "delta"])
def test_mqar_is_learned(mixer):
  task = MQAR(length=16, num_pairs=2, vocabulary=32)
  model = Backbone(mixer, vocabulary=32, width=32, mlp_width=0, convolution=3)
  protocol = Online(
    thresholds=(0.1,), optimizer=sepfx.training.AdamW(1e-2), check_every=20, num_test=500,
    max_samples=100_000,
  )  # fmt: skip
  records = sepfx.measure(task, model, 16, protocol, num_trials=2, progress=False)
  assert set(records.table["outcome"]) == {"reached"}


def test_a_sample_can_be_read_without_this_library():
  tokens, asked, labels = MQAR(length=8, num_pairs=1, vocabulary=10).draw(
    jax.random.key(0), 3
  )
  assert isinstance(Sequences(tokens, asked, labels), tuple)
  assert {np.asarray(own).dtype.kind for own in (tokens, asked, labels)} == {"i"}


def drawn(task, n=300, seed=0):
  """Planted parameters, tokens, and the answer to each position; -1 for none."""
  planted = task.init(jax.random.key(seed))
  tokens, asked, labels = map(
    np.asarray, task.sample(jax.random.key(seed + 1), planted, n)
  )
  assert tokens.shape == (n, task.length)
  assert tokens.min() >= 0
  assert tokens.max() < task.vocabulary
  answers = np.full(tokens.shape, -1)
  np.put_along_axis(answers, asked, labels, axis=1)
  return planted, tokens, answers


@pytest.mark.parametrize("noise", [0.0, 0.4])
def test_recall_asks_for_keys_that_were_there(noise):
  task = InContextRecall(length=24, vocabulary=14, noise_vocabulary=4, noise=noise)
  _, tokens, answers = drawn(task)
  noisy = 0
  for row, own in zip(tokens, answers, strict=True):
    value_of, wanted = {}, np.full(24, -1)
    for i in range(0, 24, 2):
      key, value = row[i : i + 2].tolist()
      if key >= 10:
        noisy += 1
        assert value >= 10
        continue
      assert key < 5 <= value < 10
      if key in value_of:
        wanted[i] = value_of[key]
      assert value_of.setdefault(key, value) == value
    np.testing.assert_array_equal(own, wanted)
    assert own[22] >= 0  # the last key was there
  # The last pair is never noise, and one more is sure not to be.
  assert noisy / (300 * 12) == pytest.approx(noise * 10 / 12, abs=0.03)


@pytest.mark.parametrize("sizes", [(2, 2), (1, 3), (3, 1)])
def test_fuzzy_recall_asks_for_values_of_keys_that_were_there(sizes):
  task = FuzzyRecall(length=24, vocabulary=9, key_size=sizes[0], value_size=sizes[1])
  _, tokens, answers = drawn(task)
  lengths: list[tuple[int, int]] = []
  for row, own in zip(tokens, answers, strict=True):
    value_of, wanted = {}, np.full(24, -1)
    i = int(np.sum(row == 8))
    assert np.all(row[:i] == 8)
    # In front there is a blank for each token that a longest pair would have more.
    assert i < 2 * sum(sizes)
    while i < 24:
      start, end = i, 24
      while start < 24 and row[start] < 4:
        start += 1
      if np.any(row[start:] < 4):
        end = start + int(np.argmax(row[start:] < 4))
      key, value = tuple(row[i:start].tolist()), tuple(row[start:end].tolist())
      assert len(set(key)) == len(key) <= sizes[0]
      assert len(set(value)) == len(value) <= sizes[1]
      known = key in value_of
      if known:
        wanted[start - 1 : end - 1] = value
      if end < 24:
        assert value_of.setdefault(key, value) == value
        lengths.append((len(key), len(value)))
        i = end
        continue
      i = 24
      # The last value goes one token beyond the end, where it is asked for.
      whole = value_of[key]
      assert whole[: len(value)] == value
      assert len(whole) == len(value) + 1
      wanted[start - 1 : 24] = whole
    np.testing.assert_array_equal(own, wanted)
  for size, largest in zip(np.transpose(lengths), sizes, strict=True):
    share = np.bincount(size, minlength=largest + 1)[1:] / len(size)
    assert share == pytest.approx(1 / largest, abs=0.08)  # short ones fit more often


def test_induction_heads_ask_for_what_followed():
  _, tokens, answers = drawn(InductionHeads(length=12, vocabulary=6))
  places = [np.flatnonzero(row == 5).tolist() for row in tokens]
  assert all(len(own) == 2 and own[1] == 11 for own in places)
  for row, own, (place, _) in zip(tokens, answers, places, strict=True):
    assert own[11] == row[place + 1]
    assert np.all(own[:11] == -1)
  first = np.bincount([own[0] for own in places], minlength=11)
  assert np.all(first[:10] > 0)
  assert first[10] == 0


@pytest.mark.parametrize("task", [Copying, SelectiveCopying])
def test_copying_asks_for_the_tokens_in_order(task):
  own = task(length=20, num_copied=4, vocabulary=7)
  _, tokens, answers = drawn(own)
  assert np.all(tokens[:, 15] == 6)
  assert np.all(tokens[:, 16:] == 5)
  for row, answer in zip(tokens, answers, strict=True):
    copied = row[:15][row[:15] < 5]
    np.testing.assert_array_equal(answer[16:], copied)
    assert np.all(answer[:16] == -1)
  between = tokens[:, :4] == 5
  assert np.any(between) == own.selective
  # A published blank stands before a token, never after the last one.
  assert np.all(tokens[:, 14] != 5) == own.selective


@pytest.mark.parametrize("group", ["Z2", "Z5", "S3", "S4", "S5"])
def test_tables_are_groups(group):
  table = multiplication(group)
  size = len(table)
  assert size == {"Z2": 2, "Z5": 5, "S3": 6, "S4": 24, "S5": 120}[group]
  np.testing.assert_array_equal(table[0], np.arange(size))
  np.testing.assert_array_equal(table[:, 0], np.arange(size))
  for side in (table, table.T):
    assert all(len(set(row)) == size for row in side.tolist())
  a, b, c = np.random.default_rng(0).integers(0, size, (3, 200))
  np.testing.assert_array_equal(table[table[a, b], c], table[a, table[b, c]])
  assert np.array_equal(table, table.T) == (group[0] == "Z")


@pytest.mark.parametrize("group", ["Z2", "Z5", "S3", "S5"])
def test_word_problems_ask_for_products(group):
  table = multiplication(group)
  _, tokens, answers = drawn(WordProblem(length=9, group=group), n=50)
  for row, own in zip(tokens, answers, strict=True):
    product = 0
    for token, answer in zip(row, own, strict=True):
      product = table[token, product]
      assert answer == product
  _, again, last = drawn(WordProblem(length=9, group=group, last=True), n=50)
  np.testing.assert_array_equal(tokens, again)
  np.testing.assert_array_equal(last[:, -1], answers[:, -1])
  assert np.all(last[:, :-1] == -1)


def test_parity_is_the_sum_of_bits():
  _, tokens, answers = drawn(WordProblem(length=9, group="Z2"))
  np.testing.assert_array_equal(answers, np.cumsum(tokens, axis=1) % 2)


def test_dyck_asks_for_the_innermost_open_bracket():
  _, tokens, answers = drawn(Dyck(length=40, num_types=3, depth=4))
  deepest = 0
  for row, own in zip(tokens, answers, strict=True):
    stack = []
    for token, answer in zip(row.tolist(), own, strict=True):
      if token < 3:
        stack.append(token)
      else:
        assert stack.pop() == token - 3
      assert answer == (stack[-1] if stack else -1)
      deepest = max(deepest, len(stack))
  assert deepest == 4


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_k_hop_follows_its_definition(hops):
  _, tokens, answers = drawn(KHop(length=20, hops=hops, vocabulary=3), n=100)
  for row, own in zip(tokens, answers, strict=True):
    for i in range(20):
      place = i
      for _ in range(hops):
        places = [j for j in range(1, place + 1) if row[j - 1] == row[place]]
        place = max(places, default=None) if place is not None else None
        if place is None:
          break
      assert own[i] == (-1 if place is None else row[place])


@pytest.mark.parametrize(
  "task",
  [
    MQAR(length=16, num_pairs=3, vocabulary=18), InContextRecall(length=20, vocabulary=8),
    InductionHeads(vocabulary=5), Copying(vocabulary=6), WordProblem(group="S3"),
    Dyck(num_types=3), KHop(vocabulary=3), Memorisation(vocabulary=9),
    FuzzyRecall(length=30, vocabulary=7, key_size=2, value_size=2),
  ],
  ids=lambda task: task.name,
)  # fmt: skip
def test_one_answer_to_all_is_wrong_as_often_as_said(task):
  _, _, answers = drawn(task, n=3000)
  there = answers >= 0
  number = np.maximum(there.sum(axis=1), 1)
  wrong = [
    np.mean(np.sum(there & (answers != value), axis=1) / number)
    for value in range(task.vocabulary)
  ]
  assert min(wrong) == pytest.approx(task.best_constant_error(), abs=0.05)


def test_memorised_values_are_planted_once_for_each_trial():
  task = Memorisation(length=10, vocabulary=12)
  table, tokens, answers = drawn(task)
  assert sorted(set(np.asarray(table).tolist())) == sorted(np.asarray(table).tolist())
  assert np.all((table >= 5) & (table < 11))
  assert np.all(tokens[:, 1::2] == 11)
  np.testing.assert_array_equal(answers[:, 1::2], np.asarray(table)[tokens[:, ::2]])
  assert np.any(task.init(jax.random.key(5)) != table)


@pytest.mark.parametrize(
  ("task", "fields", "what"),
  [
    (InContextRecall, {"noise": 0.2}, "noise"),
    (InContextRecall, {"noise_vocabulary": 14}, "vocabulary"),
    (InContextRecall, {"length": 5}, "length"),
    (InductionHeads, {"vocabulary": 2}, "vocabulary"),
    (Copying, {"length": 32}, "length"),
    (WordProblem, {"group": "S6"}, "group"),
    (WordProblem, {"group": "D4"}, "group"),
    (Dyck, {"depth": 0}, "depth"),
    (KHop, {"hops": 0}, "hops"),
    (Memorisation, {"length": 3}, "length"),
    (FuzzyRecall, {"length": 11}, "length"),
    (FuzzyRecall, {"vocabulary": 6}, "vocabulary"),
    (FuzzyRecall, {"key_size": 0}, "key_size"),
    (FuzzyRecall, {"value_size": 0}, "value_size"),
  ],
)
def test_bad_settings_are_refused(task, fields, what):
  with pytest.raises(InvalidSetting, match=what):
    task(**fields)

"""Searches over one axis or several: which trials they choose, and how many at most."""

import itertools
import types

import numpy as np
import pytest

from experiments import best_rate
from sepfx.ensembles import trial_name
from sepfx.studies.searches import Pilots


def test_pilots_choose_the_rates_to_go_on_with():
  chosen = best_rate.STUDY.chosen(
    ["--models=transformer", "--lengths=4,8", "--max_samples=64000", "--num_trials=5"]
  )
  cells = best_rate.STUDY.cells(chosen)
  assert len(cells) == 2 * 7
  search = best_rate.STUDY.search(cells, chosen)
  first = search({})
  assert search.is_open
  assert sorted(first) == sorted(trial_name(c, k) for c in cells for k in (0, 1))
  n = {1e-4: None, 3e-4: 9000, 1e-3: 4900, 3e-3: 1000, 1e-2: 1100, 3e-2: None, 1e-1: None}

  def rows(cell, k):
    own = n[cell.coordinates["learning_rate"]]
    if cell.coordinates["length"] == 8:  # one of two reaches, another late
      own = {1e-2: (None, 2000), 1e-3: (20_000, 30_000)}.get(
        cell.coordinates["learning_rate"], (None, None)
      )[k]
    reached = {"samples": own, "outcome": "reached"}
    return [reached if own else {"samples": 64_000, "outcome": "censored"}]

  ended = {trial_name(c, k): rows(c, k) for c in cells for k in (0, 1)}
  second = search(ended)
  going_on = {
    (c.coordinates["length"], c.coordinates["learning_rate"])
    for c in cells
    if trial_name(c, 2) in second
  }
  # At 4 within five times 1,000. At 8 the least mean is 25,000: one that spent its
  # budget counts with it, and a rate is near if one of its trials is.
  assert going_on == {(4, 1e-3), (4, 3e-3), (4, 1e-2), (8, 1e-2), (8, 1e-3)}
  assert len(second) == 3 * len(going_on)
  assert search.num_trials == 2 * 14 + len(second)
  assert not search.is_open
  assert search(ended) == []


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("num_trials", [1, 2, 10])
def test_no_search_runs_more_trials_than_it_says(axes, num_trials):
  """Whatever the outcomes are: they are drawn at random here."""
  values = {
    "learning_rate": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1],
    "batch_size": [1, 4, 16, 64, 256],
    "weight_decay": [0.0, 0.1],
  }
  names = list(values)[:axes]
  budget = types.SimpleNamespace(protocol=types.SimpleNamespace(budget=10_000))
  cells = [
    types.SimpleNamespace(
      name="/".join(map(str, own)), trial=budget,
      coordinates={"model": "m", **dict(zip(names, own, strict=True))},
    )
    for own in itertools.product(*(values[name] for name in names))
  ]  # fmt: skip
  for seed in range(20):
    rng = np.random.default_rng(seed)
    search = Pilots(cells, num_trials, names)
    most, ended, spread = search.num_trials, {}, rng.choice([0.1, 0.7, 3.0])
    while chosen := search(ended):
      assert search.is_open or len(ended) + len(chosen) == search.num_trials
      for name in chosen:
        n = np.exp(rng.normal(8, spread, 2)).astype(int)
        ended[name] = [
          {"samples": int(own), "outcome": "reached" if own < 10_000 else "censored"}
          for own in n
        ]
    assert not search.is_open
    assert len(ended) == search.num_trials <= most


def test_pilots_alone_where_no_more_are_asked_for():
  chosen = best_rate.STUDY.chosen(["--models=transformer", "--lengths=4"])
  cells = best_rate.STUDY.cells(chosen)
  search = Pilots(cells, 1, ("learning_rate",))
  first = search({})
  assert search.is_open
  assert len(first) == 7
  assert search({name: [{"samples": 640, "outcome": "reached"}] for name in first}) == []

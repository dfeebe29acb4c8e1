"""How right property testers are, on functions whose spectra are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Integer

from sepfx.models import predict
from sepfx.statistics.intervals import restricted_mean, student_interval
from sepfx.statistics.success import success_fraction

from ..spectra import spectrum
from .estimators import (
  Estimate,
  Function,
  Verdict,
  degree_verdict,
  estimate_degree,
  estimate_width,
  width_verdict,
)

# Inputs that a model computes at once.
_CHUNK = 1024
Rows = Sequence[Mapping[str, Any]]


class Case(NamedTuple):
  """A function to test.

  Attributes:
    labels: columns that tell it from others: `kind` (target or trained), and of the
      function that was drawn `degree`, `num_components` and `index`.
    seed: of all tests of it.
    function: bits [N T] -> values [N].
    length: T.
    exact: its `distances`.
  """

  labels: Mapping[str, Any]
  seed: tuple[int, ...]
  function: Function
  length: int
  exact: Mapping[str, Float[np.ndarray, " L"]]


class PropertyTester(NamedTuple):
  """Tests of one property.

  Attributes:
    sweep: generator, function, length, tau -> the first level that is accepted.
    test: generator, function, length, level, tau -> the verdict on one level.
    most: the last level of the sweep.
  """

  sweep: Callable[..., Estimate]
  test: Callable[..., Verdict]
  most: int


def property_testers(
  max_degree: int, num_subcubes: int, max_width: int, num_restrictions: int
) -> dict[str, PropertyTester]:
  """Returns the testers of "degree" and "width" (see `estimators`)."""
  degree: dict[str, Any] = {"num_subcubes": num_subcubes}
  width: dict[str, Any] = {"num_restrictions": num_restrictions}
  return {
    "degree": PropertyTester(
      functools.partial(estimate_degree, max_degree=max_degree, **degree),
      functools.partial(degree_verdict, **degree),
      max_degree,
    ),
    "width": PropertyTester(
      functools.partial(estimate_width, max_width=max_width, **width),
      functools.partial(width_verdict, **width),
      max_width,
    ),
  }


def distances(
  sizes: Integer[np.ndarray, " K"], energies: Float[np.ndarray, " K"]
) -> dict[str, Float[np.ndarray, " L"]]:
  """How far a function is from each level of a property.

  The distance is the root of the share of its variance that no function of that level
  can have: what is above the degree, or beyond the largest k coefficients.

  Args:
    sizes: |S| of its components, the constant not among them.
    energies: their squared coefficients.

  Returns:
    Of "degree" and of "width" the distances from levels 1, 2, ..., the last of them 0.
  """
  parts = {
    "degree": np.bincount(sizes, weights=energies)[1:],
    "width": np.sort(energies[energies > 0])[::-1],
  }
  total = float(energies.sum()) or 1.0
  found = {}
  for name, own in parts.items():
    beyond = np.cumsum(own[::-1])[::-1]
    found[name] = np.sqrt(np.append(beyond[1:], 0.0) / total)
  return found


def model_case(
  labels: Mapping[str, Any],
  seed: tuple[int, ...],
  model: nn.Module,
  params: Any,
  length: int,
) -> Case:
  """A trained model as a function to test; computes its whole spectrum.

  Args:
    labels, seed: of the `Case`.
    model: bits [n T] -> values [n].
    params: its weights.
    length: T, at most 20.

  Raises:
    InvalidSetting: for a larger T.
  """
  energies = np.asarray(_spectrum(model, params, length), float)[1:] ** 2
  exact = distances(np.bitwise_count(np.arange(1, len(energies) + 1)), energies)
  return Case(labels, seed, functools.partial(_values, model, params), length, exact)


@functools.partial(jax.jit, static_argnums=(0, 2))
def _spectrum(model: nn.Module, params: Any, length: int) -> Float[Array, "2**{length}"]:
  return spectrum(functools.partial(predict, model, params), length)


@functools.partial(jax.jit, static_argnums=0)
def _values(model: nn.Module, params: Any, bits: Int[Array, "n T"]) -> Float[Array, " n"]:
  def one(own: Int[Array, " T"]) -> Float[Array, ""]:
    return predict(model, params, own[None])[0]

  return jax.lax.map(one, bits, batch_size=_CHUNK)


def compare(
  case: Case, testers: Mapping[str, PropertyTester], taus: Sequence[float]
) -> list[dict[str, Any]]:
  """Tests one function, and says what the tests should have found.

  Two single tests are the hardest, each with draws of its own: of the least level that
  the function is within tau of, which should be accepted, and of the level below it,
  which should be rejected.

  Args:
    case: the function.
    testers: by property.
    taus: proximity parameters.

  Returns:
    A row for each property and tau, which begins with the labels and the planted level.
    `within` is the least level that the function is within tau of. `found` is the level
    at which the sweep stopped, None where it accepted none up to `most`, and `queries`
    is what it used. `distance_within`, `accepted_within`, `distance_below` and
    `accepted_below` are of the single tests. Above the last level nothing is tested:
    `within` is None there, and the level below is the last. Below level 1 there is
    nothing to test.

  Raises:
    InvalidSetting: as the testers do.
  """
  rng = np.random.default_rng(case.seed)
  planted = {"degree": case.labels["degree"], "width": case.labels["num_components"]}
  rows = []
  for name, tester in testers.items():
    exact = case.exact[name]
    for tau in taus:
      within = 1 + int(np.argmax(exact <= tau))
      swept = tester.sweep(rng, case.function, case.length, tau=tau)
      row: dict[str, Any] = {
        **case.labels,
        "property": name,
        "planted": planted[name],
        "tau": tau,
        "within": within if within <= tester.most else None,
        "found": swept.value,
        "most": tester.most,
        "queries": swept.queries,
      }
      for kind, level in (("within", within), ("below", min(within - 1, tester.most))):
        tested = 1 <= level <= tester.most
        row[f"distance_{kind}"] = float(exact[level - 1]) if tested else None
        row[f"accepted_{kind}"] = (
          tester.test(rng, case.function, case.length, level, tau=tau).accepted
          if tested
          else None
        )
      rows.append(row)
  return rows


def summarise_tests(rows: Rows) -> dict[str, Any]:
  """Summarises what `compare` found of several functions.

  Args:
    rows: what `compare` returns.

  Returns:
    JSON values. `rates` by kind, property and tau, `levels` by planted level, too. Each
    has the number of `functions` and the mean `queries` with its 95% Student-t interval.
    `right_planted` is the share of sweeps that found the planted level, `right_within`
    that found the least level within tau, of the functions that have one.
    `false_rejection` and `false_acceptance` are shares of the single tests. Shares have
    95% Wilson intervals, and a count `..._of`. Levels also have the means of `found` and
    `within`, cut at the last level of the sweep where one was not reached
    (`found_restricted`). None stands where there is nothing to average.
  """
  rates = ("kind", "property", "tau")
  levels = ("kind", "property", "planted", "tau")
  return {
    "rates": [_rates(keys, own) for keys, own in _grouped(rows, rates)],
    "levels": [
      {**_rates(keys, own), **_mean_level("found", own), **_mean_level("within", own)}
      for keys, own in _grouped(rows, levels)
    ],
  }


def _grouped(rows: Rows, names: Sequence[str]) -> list[tuple[dict[str, Any], Rows]]:
  groups: dict[tuple, list] = {}
  for row in rows:
    groups.setdefault(tuple(row[name] for name in names), []).append(row)
  return [(dict(zip(names, key, strict=True)), own) for key, own in groups.items()]


def _rates(keys: dict[str, Any], rows: Rows) -> dict[str, Any]:
  within = [row["accepted_within"] for row in rows]
  below = [row["accepted_below"] for row in rows]
  mean, low, high = student_interval(np.array([row["queries"] for row in rows], float))
  return {
    **keys,
    "functions": len(rows),
    **_share("right_planted", [row["found"] == row["planted"] for row in rows]),
    **_share(
      "right_within",
      [row["found"] == row["within"] for row in rows if row["within"] is not None],
    ),
    **_share("false_rejection", [not own for own in within if own is not None]),
    **_share("false_acceptance", [own for own in below if own is not None]),
    "queries": mean,
    "queries_low": None if np.isnan(low) else max(low, 0.0),
    "queries_high": None if np.isnan(high) else high,
  }


def _share(name: str, which: Sequence[bool]) -> dict[str, Any]:
  if not which:
    return {name: None, f"{name}_low": None, f"{name}_high": None, f"{name}_of": 0}
  p, low, high, _ = success_fraction(sum(which), len(which))
  return {name: p, f"{name}_low": low, f"{name}_high": high, f"{name}_of": len(which)}


def _mean_level(name: str, rows: Rows) -> dict[str, Any]:
  levels = np.array([row[name] or row["most"] for row in rows])
  reached = np.array([row[name] is not None for row in rows])
  own = restricted_mean(levels, reached, rows[0]["most"])
  low, high = (None if np.isnan(end) else end for end in (own.low, own.high))
  return {
    name: own.mean,
    f"{name}_low": low,
    f"{name}_high": high,
    f"{name}_restricted": own.restricted,
  }

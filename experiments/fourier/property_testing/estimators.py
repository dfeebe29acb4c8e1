"""Degree and number of Fourier components of a function, from few of its values.

After appendix H of *A Sharper Picture of Generalization in Transformers* (Lintilhac,
Shaikh, 2026). There both are estimated by sweeping up to the first level that a property
test accepts. Its degree test compares f with interpolating polynomials; the one here
measures energy. Its width test transforms f on random restrictions, as the one here does.
The functions are real-valued, on T bits, and are only evaluated.

A component is chi_S(b) = prod_{j in S} (1 - 2 b_j) of nonempty S with its coefficient.
The constant is none: its degree is 0, and no test counts it.

Both tests look at f through random restrictions, small cubes within {0, 1}^T, on which
the spectrum is computed in full. A restriction merges components and adds none; one
whose free directions are disjoint blocks does not raise the degree either. So functions
that have a property are accepted whatever was drawn, up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sepfx.errors import require

Function = Callable[[Array], Array]
# A generator is consumed; a number starts a new one.
Seed = int | np.random.Generator


class Verdict(NamedTuple):
  """What one test found.

  Attributes:
    accepted: whether the statistic is at most the threshold.
    statistic: of `degree_verdict` in the units of f, of `width_verdict` in their square.
    threshold: in the same units.
    queries: inputs on which f was evaluated.
  """

  accepted: bool
  statistic: float
  threshold: float
  queries: int


class Estimate(NamedTuple):
  """What a sweep found.

  Attributes:
    value: the first level that was accepted; None where none was.
    queries: inputs on which f was evaluated, over all levels.
  """

  value: int | None
  queries: int


def degree_verdict(
  seed: Seed,
  function: Function,
  length: int,
  degree: int,
  *,
  tau: float,
  num_subcubes: int,
) -> Verdict:
  """Tests whether f has degree at most d.

  A subcube has a uniform base point and m = min(d + 2, T) random disjoint blocks of
  positions, each of which flips as a whole. On it chi_S is, up to its sign, the parity of
  the blocks that it meets in an odd number of positions. S of at most d positions meets
  at most d blocks: it never adds to the energy above degree d on the subcube. S of more
  is seen, with all of its energy, where it meets more than d blocks oddly; its chance is
  `seen_probability`. Different S do not mix on average, their signs being uncorrelated
  over base points. So the mean energy above degree d is sum_S f^(S)^2 P(S is seen).

  Blocks have more power than single free positions. At T = 20 and d = 3, a component of
  four positions is seen by four single free positions with chance 1/4845, and by the
  five blocks with chance 0.2. d + 2 blocks have more than d + 1. The energy at degree
  d + 1 of cubes of d + 1 blocks is 0 for S of d + 2 positions where the blocks hold all
  positions: d + 1 odd numbers do not add up to d + 2. Where they do not, two such cubes
  take the queries of one of these. At T = 20 and d = 4 they see the size they see least
  with chance 0.05 at best, and one of these with 0.09.

  The statistic is the root of that mean energy over P(a given S of d + 1 positions is
  seen). On average over draws its square is the energy of f above degree d where that
  lies at d + 1. Other sizes count in proportion to their chances: at T = 20 and d up to
  5, sizes up to 14 by 0.5 to 1.6, larger ones by up to 18. With n subcubes, a lone
  component is missed with chance (1 - P)^n.

  Args:
    seed: of the subcubes.
    function: bits [N T] -> values [N]; called once.
    length: T, number of bits, at least 2.
    degree: d, from 1 to T - 1.
    tau: f is accepted if the statistic is at most tau times the standard deviation of
      its values at the queries; in (0, 1).
    num_subcubes: n, of 2^m queries each. One is taken where m = T: it is the whole cube,
      and the verdict is exact.

  Raises:
    InvalidSetting: for a setting outside its domain, or values that are not N finite
      numbers.
  """
  _check_degree("degree", degree, length)
  _check_tau(tau)
  require(num_subcubes >= 1, "num_subcubes", num_subcubes, "an integer >= 1")
  rng = np.random.default_rng(seed)
  sizes = _block_sizes(length, degree)
  m = len(sizes)
  n = 1 if m == length else num_subcubes
  # Positions of no block are of block m, which never flips.
  blocks = np.repeat(np.arange(m + 1), [*sizes, length - sum(sizes)])
  blocks = rng.permuted(np.tile(blocks, (n, 1)), axis=1)
  flipped = np.column_stack([_cube(m), np.zeros(2**m, int)])
  flips = np.moveaxis(flipped[:, blocks], 0, 1)
  energies, variance = _restricted(rng, function, flips)
  high = np.bitwise_count(np.arange(2**m)) > degree
  energy = float(energies[:, high].sum(axis=1).mean())
  residual = math.sqrt(energy / seen_probability(length, degree, degree + 1))
  threshold = tau * math.sqrt(variance)
  return Verdict(residual <= threshold, residual, threshold, n * 2**m)


def seen_probability(length: int, degree: int, size: int) -> float:
  """Chance that one subcube of `degree_verdict` sees a component.

  It is the share of the sets of that size that have an odd number of positions in more
  than d of the blocks: counted block by block, without sampling.

  Args:
    length: T, at least 2.
    degree: d of the test, from 1 to T - 1.
    size: |S|, from 1 to T.

  Returns:
    The chance: 0 for sizes up to d, positive for all others.

  Raises:
    InvalidSetting: for a setting outside its domain.
  """
  _check_degree("degree", degree, length)
  require(1 <= size <= length, "size", size, f"an integer from 1 to {length}")
  sizes = _block_sizes(length, degree)
  # ways[s, o]: sets of s positions in the blocks so far, o of which they meet oddly.
  ways = np.zeros((length + 1, len(sizes) + 1))
  ways[0, 0] = 1.0
  for block, counts in [*((own, 1) for own in sizes), (length - sum(sizes), 0)]:
    before, ways = ways, np.zeros_like(ways)
    for taken in range(block + 1):
      odd = counts * (taken % 2)
      rest = before[: length + 1 - taken, : len(sizes) + 1 - odd]
      ways[taken:, odd:] += math.comb(block, taken) * rest
  return float(ways[size, degree + 1 :].sum() / math.comb(length, size))


def estimate_degree(
  seed: Seed,
  function: Function,
  length: int,
  *,
  max_degree: int,
  tau: float,
  num_subcubes: int,
) -> Estimate:
  """Sweeps d = 1, 2, ... up to the first that `degree_verdict` accepts.

  Functions of degree d come out at d or below, never above, up to rounding: below, where
  the energy higher up is little or was missed.
  A function without components comes out at 1.

  Args:
    seed: of all subcubes.
    function: bits [N T] -> values [N]; called once per degree.
    length: T, number of bits, at least 2.
    max_degree: where the sweep ends, from 1 to T - 1.
    tau: see `degree_verdict`.
    num_subcubes: subcubes per degree.

  Raises:
    InvalidSetting: as `degree_verdict` does.
  """
  _check_degree("max_degree", max_degree, length)
  rng = np.random.default_rng(seed)

  def verdict(degree: int) -> Verdict:
    return degree_verdict(
      rng, function, length, degree, tau=tau, num_subcubes=num_subcubes
    )

  return _first_accepted(verdict, max_degree)


def width_verdict(
  seed: Seed,
  function: Function,
  length: int,
  width: int,
  *,
  tau: float,
  num_restrictions: int,
) -> Verdict:
  """Tests whether f has at most k components, the constant not counted.

  A restriction is g(a) = f(b xor M a) of a in {0, 1}^r, with a uniform base point b and
  M = [I; R] over GF(2): the identity for the first r positions, R uniform. chi_S becomes
  chi_A of A = M^T S, up to its sign. So g^(A) is the signed sum of f^(S) over a coset.
  Two given S share a coset with chance at most 2^-r: never if they differ in the first r
  positions alone, and otherwise because R^T of what they differ in elsewhere is uniform.

  r is the least with 2^r >= 4 (k + 1)^2, or T. Of k + 1 components and the empty set,
  any two then share a coset with chance at most (k + 2) / (8 (k + 1)), which is 3/16
  for k = 1 and near 1/8 for large k. Below half, the median over restrictions is that of
  restrictions in which nothing merged, and the tail energy that f itself has.

  The statistic is that median of the energy beyond the k largest coefficients of g. The
  coefficient of A = 0, in which the constant is, is left out first.

  Args:
    seed: of the restrictions.
    function: bits [N T] -> values [N]; called once.
    length: T, number of bits, at least 1.
    width: k, at least 1.
    tau: f is accepted if the statistic is at most tau^2 times the variance of its values
      at the queries; in (0, 1).
    num_restrictions: of 2^r queries each. One is taken where r = T: it is the whole
      cube, and the verdict is exact.

  Raises:
    InvalidSetting: for a setting outside its domain, or values that are not N finite
      numbers.
  """
  require(length >= 1, "length", length, "an integer >= 1")
  require(width >= 1, "width", width, "an integer >= 1")
  _check_tau(tau)
  takes = "an integer >= 1"
  require(num_restrictions >= 1, "num_restrictions", num_restrictions, takes)
  rng = np.random.default_rng(seed)
  r = min(length, (4 * (width + 1) ** 2 - 1).bit_length())
  n = 1 if r == length else num_restrictions
  free = np.broadcast_to(np.eye(r, dtype=int), (n, r, r))
  linear = np.concatenate([free, rng.integers(0, 2, (n, length - r, r))], axis=1)
  flips = np.einsum("ar,ntr->nat", _cube(r), linear) % 2
  energies, variance = _restricted(rng, function, flips)
  ordered = np.sort(energies[:, 1:], axis=1)[:, ::-1]
  tail = float(np.median(ordered[:, width:].sum(axis=1)))
  threshold = tau**2 * variance
  return Verdict(tail <= threshold, tail, threshold, n * 2**r)


def estimate_width(
  seed: Seed,
  function: Function,
  length: int,
  *,
  max_width: int,
  tau: float,
  num_restrictions: int,
) -> Estimate:
  """Sweeps k = 1, 2, ... up to the first that `width_verdict` accepts.

  Functions of k components come out at k or below, never above, up to rounding: below,
  where the smallest together have less than tau^2 of the variance. A function without
  components comes out at 1.

  Args:
    seed: of all restrictions.
    function: bits [N T] -> values [N]; called once per width.
    length: T, number of bits, at least 1.
    max_width: where the sweep ends, at least 1.
    tau: see `width_verdict`.
    num_restrictions: restrictions per width.

  Raises:
    InvalidSetting: as `width_verdict` does.
  """
  require(max_width >= 1, "max_width", max_width, "an integer >= 1")
  rng = np.random.default_rng(seed)

  def verdict(width: int) -> Verdict:
    return width_verdict(
      rng, function, length, width, tau=tau, num_restrictions=num_restrictions
    )

  return _first_accepted(verdict, max_width)


def _first_accepted(verdict: Callable[[int], Verdict], most: int) -> Estimate:
  queries = 0
  for level in range(1, most + 1):
    own = verdict(level)
    queries += own.queries
    if own.accepted:
      return Estimate(level, queries)
  return Estimate(None, queries)


def _check_degree(setting: str, degree: int, length: int) -> None:
  require(length >= 2, "length", length, "an integer >= 2")
  takes = f"an integer from 1 to one below the number of bits, {length - 1}"
  require(1 <= degree <= length - 1, setting, degree, takes)


def _check_tau(tau: float) -> None:
  require(0 < tau < 1, "tau", tau, "a number in (0, 1)")


def _block_sizes(length: int, degree: int) -> list[int]:
  """Positions in each of the min(d + 2, T) blocks: odd, as equal as may be.

  One or two positions are left out, but for the whole cube. So every size above d is
  seen with positive chance. Even sizes that hold all positions would never see S = all.
  """
  m = min(degree + 2, length)
  pairs = max(length - 1 - m, 0) // 2
  return [1 + 2 * (pairs // m + (block < pairs % m)) for block in range(m)]


def _cube(dimension: int) -> Int[np.ndarray, "2**{dimension} {dimension}"]:
  """All points; the first bit is the index's lowest digit."""
  return (np.arange(2**dimension)[:, None] >> np.arange(dimension)) & 1


def _restricted(
  rng: np.random.Generator, function: Function, flips: Int[np.ndarray, "n size T"]
) -> tuple[Float[np.ndarray, "n size"], float]:
  """Squared coefficients of f on cubes around random base points.

  Args:
    rng: draws the base points.
    function: bits [N T] -> values [N].
    flips: which bits differ from the base, for each point of each cube.

  Returns:
    The squares, and the variance of the values over all cubes.
  """
  n, size, length = flips.shape
  base = rng.integers(0, 2, (n, 1, length))
  bits = jnp.asarray((base ^ flips).reshape(-1, length), jnp.int32)
  values = np.asarray(function(bits), float)
  takes = f"one with values of shape {(len(bits),)}"
  require(values.shape == (len(bits),), "function", values.shape, takes)
  bad = int(np.sum(~np.isfinite(values)))
  require(bad == 0, "function", f"{bad} values that are not", "one with finite values")
  # Without the mean there is less to round; only the constant changes, which is not used.
  values = values - values.mean()
  coefficients = values.reshape(n, size)
  for place in range(size.bit_length() - 1):
    pairs = coefficients.reshape(n, -1, 2, 2**place)
    total, difference = pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]
    coefficients = np.stack([total, difference], axis=2).reshape(n, size)
  return (coefficients / size) ** 2, float(np.mean(values**2))

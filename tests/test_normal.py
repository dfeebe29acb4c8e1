"""Normal numbers against the inverse error function of SciPy and those of JAX."""

import jax
import numpy as np
import scipy.special

from sepfx.tasks.normal import normal, normal_quantile


def test_quantiles():
  one = np.float32(1)
  ends = [np.nextafter(one, np.float32(0)), np.float32(1e-30), np.float32(1e-6)]
  x = np.concatenate([np.linspace(0, 1, 200_001, dtype=np.float32)[:-1], ends])
  x = np.concatenate([-x, x])
  exact = scipy.special.erfinv(x.astype(np.float64))
  np.testing.assert_allclose(jax.jit(normal_quantile)(x), np.sqrt(2) * exact, rtol=5e-7)


def test_the_same_numbers_as_those_of_jax():
  key = jax.random.key(5)
  ours = jax.jit(normal, static_argnums=1)(key, (300, 7, 11))
  theirs = jax.random.normal(key, (300, 7, 11))
  assert ours.dtype == theirs.dtype
  np.testing.assert_allclose(ours, theirs, rtol=1e-5)

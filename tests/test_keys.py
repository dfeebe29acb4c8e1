"""Random numbers of our keys against JAX's own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.ensembles import keys


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1])
@pytest.mark.slow
def test_every_draw_is_that_of_jax(seed):
  ours, theirs = keys.key(seed), jax.random.key(seed)
  for derive in (
    lambda key: key,
    lambda key: jax.random.fold_in(key, 12345),
    lambda key: jax.random.fold_in(key, jnp.int32(-3)),
    lambda key: jax.random.split(key, (2, 3))[1, 2],
    lambda key: jax.random.split(key)[1],
  ):
    a, b = derive(ours), derive(theirs)
    np.testing.assert_array_equal(jax.random.key_data(a), jax.random.key_data(b))
    for draw in (
      lambda key: jax.random.normal(key, (5, 7)),
      lambda key: jax.random.normal(key, (64, 12, 10)),
      lambda key: jax.random.randint(key, (64, 12), 0, 12),
      lambda key: jax.random.uniform(key, (3,)),
      lambda key: jax.random.randint(key, (50,), 0, 12),
      lambda key: jax.random.rademacher(key, (50,)),
      lambda key: jax.random.permutation(key, 20),
      lambda key: jax.random.bits(key, (9,), jnp.uint8),
      lambda key: jax.random.bits(key, (9,), jnp.uint16),
      lambda key: jax.random.choice(key, 10, (4,), replace=False),
    ):
      np.testing.assert_array_equal(draw(a), draw(b))


def test_draws_under_vmap_are_those_of_single_keys():
  many = jax.random.split(keys.key(3), 4)
  batched = jax.vmap(lambda key: jax.random.normal(key, (600,)))(many)
  for row, key in zip(batched, many, strict=True):
    np.testing.assert_array_equal(row, jax.random.normal(key, (600,)))
  again = keys.wrap_key_data(jax.random.key_data(many))
  np.testing.assert_array_equal(
    jax.vmap(jax.random.bits)(again), jax.vmap(jax.random.bits)(many)
  )

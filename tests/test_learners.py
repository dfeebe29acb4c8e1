"""The learners of section 2 on least squares, whose answers are known."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.optimize

from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR, shared
from sepfx.training import ERM, AdamW, penalised, projected
from tests import small

TASK = QSTR(length=3, token_dim=4, indices=shared)
n = 8


class LeastSquares(nn.Module):
  """A linear function of the whole prompt, the same at all positions."""

  @nn.compact
  def __call__(self, inputs):
    N = inputs.shape[1]
    flat = inputs.reshape(len(inputs), -1)
    value = nn.Dense(1, use_bias=False, kernel_init=nn.initializers.zeros_init())(flat)
    return jnp.broadcast_to(value, (len(inputs), N))


def trained(protocol):
  """Weights at the end of a trial, steps taken, its inputs X and labels y."""
  trial = protocol.trial(TASK, TASK, LeastSquares())
  own = small.seeds(3)
  world, state = trial.world(own), trial.init(own)
  advance = jax.jit(trial.advance)
  while bool(state.active):
    state = advance(state, world)
  inputs = np.asarray(TASK.encode(world.planted, world.sample), np.float64)
  labels = np.asarray(world.sample.labels, np.float64)[:, 0]
  weights = np.asarray(state.params["Dense_0"]["kernel"])[:, 0]
  return weights, int(state.step), inputs.reshape(n, -1), labels


def ridge(X, y, l2):
  """The minimiser of mean squares and l2 ||w||^2."""
  return np.linalg.solve(X.T @ X / n + l2 * np.eye(X.shape[1]), X.T @ y / n)


def loss(X, y, w):
  return np.mean((X @ w - y) ** 2)


def protocol(optimizer, **others):
  settings = {"sample_size": n, "num_test": 10, "check_every": 5, "max_steps": 20_000}
  return ERM(optimizer=optimizer, **{**settings, **others})


@pytest.mark.parametrize("eps", [0.2, pytest.param(0.05, marks=pytest.mark.slow)])
def test_falling_penalties_find_the_least_norm(eps):
  path = penalised(optax.sgd(0.05), lambda step: 3.0 * 0.998**step)
  own = protocol(path, threshold=eps, watched="train_loss")
  w, steps, X, y = trained(own)
  assert steps < 20_000
  # On the path of ridge regressions norms grow as losses fall: the one with the loss eps
  # has the least norm of all with a loss up to eps.
  log_l2 = scipy.optimize.brentq(
    lambda v: loss(X, y, ridge(X, y, np.exp(v))) - eps, -15, 5
  )
  least = ridge(X, y, np.exp(log_l2))
  assert loss(X, y, w) == pytest.approx(eps, rel=0.05)
  assert np.linalg.norm(w) == pytest.approx(np.linalg.norm(least), rel=0.01)
  np.testing.assert_allclose(w, least, atol=0.02 * np.linalg.norm(least))
  # Without a penalty the same steps have another answer: the norm is not the least.
  plain, _, _, _ = trained(protocol(optax.adam(0.3), threshold=eps, watched="train_loss"))
  assert np.linalg.norm(plain) > 1.03 * np.linalg.norm(least)


def test_stationary_points_are_ridge_regressions():
  own = protocol(optax.sgd(0.05), threshold=1e-5, watched="grad_norm", l2=0.1)
  w, steps, X, y = trained(own)
  assert steps < 20_000
  np.testing.assert_allclose(w, ridge(X, y, 0.1), atol=1e-4)


def test_projected_steps_find_the_best_of_the_ball():
  radius = 0.5
  ball = projected(
    optax.sgd(0.05), lambda params: optax.projections.projection_l2_ball(params, radius)
  )
  w, _, X, y = trained(protocol(ball, threshold=1e-9, max_steps=3000))
  # The best of a ball that binds is the ridge regression of that norm.
  log_l2 = scipy.optimize.brentq(
    lambda v: np.linalg.norm(ridge(X, y, np.exp(v))) - radius, -15, 5
  )
  np.testing.assert_allclose(w, ridge(X, y, np.exp(log_l2)), atol=1e-3)


def test_a_penalty_does_not_go_with_another_gradient():
  with pytest.raises(InvalidSetting, match="rho: got"):
    penalised(AdamW(rho=0.1), lambda step: 1.0)

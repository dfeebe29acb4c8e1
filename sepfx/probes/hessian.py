"""How sharply a loss curves at some weights: traces, eigenvalues, random perturbations.

The quantities of *A Sharper Picture of Generalization in Transformers*, sections 2.2 and
2.3 and appendices E.1 and F. Estimates are matfree's; nothing here holds a Hessian.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PRNGKeyArray
from matfree import decomp, eig, stochtrace

from sepfx import precision
from sepfx.errors import require

# Parameters -> a number.
Loss = Callable[[Any], Float[Array, ""]]


class Estimate(NamedTuple):
  """A Monte-Carlo mean with its standard error."""

  mean: Float[Array, ""]
  error: Float[Array, ""]


def hessian_product(loss: Loss, params: Any) -> Callable[[Array], Array]:
  """Returns v -> H v for vectors as long as all parameters, H the loss's Hessian."""
  flat, unravel = ravel_pytree(params)
  gradient = jax.grad(lambda vector: loss(unravel(vector)))
  return precision.exact()(lambda vector: jax.jvp(gradient, (flat,), (vector,))[1])


@precision.exact()
def hessian_trace(
  key: PRNGKeyArray, loss: Loss, params: Any, num_samples: int = 64
) -> Estimate:
  """Estimates Tr H by Hutchinson's estimator with random signs.

  Args:
    key: consumed.
    loss: twice differentiable at `params`.
    params: where.
    num_samples: of Hessian-vector products, at least 2.

  Raises:
    InvalidSetting: for fewer.
  """
  require(num_samples >= 2, "num_samples", num_samples, "an integer >= 2")
  flat, _ = ravel_pytree(params)
  estimate = stochtrace.estimator_monte_carlo_mean_and_sem(
    stochtrace.monte_carlo_trace(), stochtrace.sampler_signs(flat, num=num_samples)
  )
  return Estimate(*estimate(hessian_product(loss, params), key))


@precision.exact()
def gradient_trace(
  outputs: Callable[[Any, Any], Float[Array, ""]], params: Any, inputs: Any
) -> Float[Array, ""]:
  """Returns 2 E |grad f|^2, which is Tr H of the squared loss where that is 0.

  Theorem 13. Exact; one gradient per input.

  Args:
    outputs: (parameters, one input) -> f, a number.
    params: where.
    inputs: n of them.
  """

  def squared_norm(own: Any) -> Float[Array, ""]:
    gradient = jax.grad(outputs)(params, own)
    return sum((jnp.sum(a**2) for a in jax.tree.leaves(gradient)), jnp.zeros(()))

  return 2 * jnp.mean(jax.lax.map(squared_norm, inputs))


@precision.exact()
def leading_eigenvalues(
  key: PRNGKeyArray, loss: Loss, params: Any, num_matvecs: int = 30
) -> Float[Array, " num_matvecs"]:
  """Returns the Ritz values of a Krylov space, descending: the ends are eigenvalues.

  Args:
    key: consumed; draws where Lanczos' iteration starts.
    loss: twice differentiable at `params`.
    params: where.
    num_matvecs: dimension of the space, at most the number of parameters.

  Raises:
    InvalidSetting: for another dimension.
  """
  start = _start(key, params, num_matvecs)
  lanczos = eig.eigh_partial(decomp.tridiag_sym(num_matvecs))
  values, _ = lanczos(hessian_product(loss, params), start)
  return jnp.sort(values)[::-1]


@precision.exact()
def spectral_density(
  key: PRNGKeyArray,
  loss: Loss,
  params: Any,
  num_matvecs: int = 30,
  num_samples: int = 8,
) -> tuple[Float[Array, "samples nodes"], Float[Array, "samples nodes"]]:
  """Estimates how the Hessian's eigenvalues are distributed (Lanczos quadrature).

  Args:
    key: consumed; draws the directions.
    loss: twice differentiable at `params`.
    params: where.
    num_matvecs: nodes per direction.
    num_samples: directions.

  Returns:
    Nodes, and weights whose sum is 1 for each direction: the mean over directions of a
    weighted sum of g(node) estimates the mean of g over the eigenvalues.

  Raises:
    InvalidSetting: for more nodes than there are parameters.
  """
  product = hessian_product(loss, params)
  tridiagonal = decomp.tridiag_sym(num_matvecs)

  def one(own: PRNGKeyArray) -> tuple[Array, Array]:
    start = _start(own, params, num_matvecs)
    _, matrix, *_ = tridiagonal(product, start)
    values, vectors = jnp.linalg.eigh(matrix)
    return values, vectors[0] ** 2

  return jax.lax.map(one, jax.random.split(key, num_samples))


@precision.exact()
def perturbed(
  key: PRNGKeyArray,
  measure: Loss,
  params: Any,
  sigma: float | Float[Array, ""],
  num_samples: int = 64,
) -> Estimate:
  """Estimates E m(theta + sigma xi), xi standard normal in every parameter.

  With m the loss it is the loss of the posterior N(theta, sigma^2 I); with m a trace,
  what Figures 3 and 4 show.

  Args:
    key: consumed; draws xi.
    measure: m.
    params: theta.
    sigma: at least 0.
    num_samples: of xi, at least 2.

  Raises:
    InvalidSetting: for fewer.
  """
  require(num_samples >= 2, "num_samples", num_samples, "an integer >= 2")
  flat, unravel = ravel_pytree(params)

  def one(own: PRNGKeyArray) -> Float[Array, ""]:
    noise = jax.random.normal(own, flat.shape, flat.dtype)
    return measure(unravel(flat + sigma * noise))

  values = jax.lax.map(one, jax.random.split(key, num_samples))
  return Estimate(jnp.mean(values), jnp.std(values, ddof=1) / num_samples**0.5)


def _start(key: PRNGKeyArray, params: Any, num_matvecs: int) -> Array:
  """A random direction of length 1."""
  flat, _ = ravel_pytree(params)
  takes = f"an integer from 1 to the number of parameters, {flat.size}"
  require(1 <= num_matvecs <= flat.size, "num_matvecs", num_matvecs, takes)
  direction = jax.random.normal(key, flat.shape, flat.dtype)
  return direction / jnp.linalg.norm(direction)

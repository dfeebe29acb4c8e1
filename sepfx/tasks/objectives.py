"""What training minimises and evaluation measures; a task carries one of these."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int


class Objective(NamedTuple):
  """Both by sample: their means over n samples are the loss and the test error.

  Attributes:
    name: the kind of task, under which published models are listed.
    loss: (outputs, labels) -> [n], what training minimises.
    error: (outputs, labels) -> [n], what thresholds are about.
    output_shape: shape of the labels -> shape of a model's outputs.
    measure: what records call the error, or what it is the complement of.
    measured: error -> that.
    continuous: whether small changes of a model change the error of every sample a
      little, which the online protocol's screen relies on.
    error_name: what figures and tables call the mean of `error`, such as "mean squared
      error" or "error rate".
  """

  name: str
  loss: Callable[..., Float[Array, " n"]]
  error: Callable[..., Float[Array, " n"]]
  output_shape: Callable[[tuple[int, ...]], tuple[int, ...]]
  measure: str
  measured: Callable[[float], float]
  continuous: bool
  error_name: str = "error"


def prompt_errors(
  predictions: Float[Array, "n *axes"], labels: Float[Array, "n *axes"]
) -> Float[Array, " n"]:
  """Squared error of each prompt, averaged over all axes but the first."""
  return jnp.mean((predictions - labels) ** 2, axis=tuple(range(1, labels.ndim)))


def cross_entropy(
  logits: Float[Array, "*n classes"], labels: Int[Array, "*n"]
) -> Float[Array, "*n"]:
  """-log softmax(logits)_label."""
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels)


def misclassified(
  logits: Float[Array, "*n classes"], labels: Int[Array, "*n"]
) -> Float[Array, "*n"]:
  """1 where the largest logit is not the label's."""
  return (jnp.argmax(logits, axis=-1) != labels).astype(logits.dtype)


REGRESSION = Objective(
  name="regression",
  loss=prompt_errors,
  error=prompt_errors,
  output_shape=lambda labels_shape: labels_shape,
  measure="risk",
  measured=lambda error: error,
  continuous=True,
  error_name="mean squared error",
)
# Regression of one number for each input, by models of bits.
REGRESSION_ON_BITS = REGRESSION._replace(name="regression_on_bits")
CLASSIFICATION = Objective(  # labels are 0 or 1: two logits
  name="classification",
  loss=cross_entropy,
  error=misclassified,
  output_shape=lambda labels_shape: (*labels_shape, 2),
  measure="accuracy",
  measured=lambda error: 1 - error,
  continuous=False,
  error_name="error rate",
)
STEPS = Objective(  # of several labels of each input, 0 or 1: two logits for each
  name="steps",
  loss=lambda logits, labels: jnp.mean(cross_entropy(logits, labels), axis=1),
  error=lambda logits, labels: jnp.mean(misclassified(logits, labels), axis=1),
  output_shape=lambda labels_shape: (*labels_shape, 2),
  measure="accuracy",
  measured=lambda error: 1 - error,
  continuous=False,
  error_name="error rate",
)

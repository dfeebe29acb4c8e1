"""What the tests of inequalities share."""

import hypothesis
import hypothesis.strategies as st
import numpy as np

seeds = st.integers(0, 2**32 - 1)
many = hypothesis.settings(max_examples=60)


def assert_largest(left, right, at_least=0.0):
  """Asserts left <= right everywhere, and left >= at_least * right somewhere."""
  left, right = np.broadcast_arrays(left, right)
  assert np.all(left <= right * (1 + 1e-9) + 1e-13)
  assert np.max(left / np.maximum(right, 1e-300)) >= at_least


def softmax(scores):
  e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
  return e / np.sum(e, axis=-1, keepdims=True)


def longest(rows):
  """|| rows^T ||_{2, inf}, the largest 2-norm of a row, of each matrix."""
  return np.max(np.linalg.norm(rows, axis=-1), axis=-1)


def project(u):
  """Pi_norm, of each row."""
  return u / np.maximum(1.0, np.linalg.norm(u, axis=-1, keepdims=True))

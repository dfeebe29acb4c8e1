"""Constructions lie in the classes that are made for them, at their edge."""

import jax
import numpy as np
import pytest

from experiments.qstr.constructions.classes import class_of, retrieval_class
from experiments.qstr.constructions.recurrent import recurrent_retrieval
from experiments.qstr.constructions.retrieval import retrieval_transformer
from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR, ReLUTeacher, SquaredNorm, shared


@pytest.mark.parametrize("prefactor", [True, False])
def test_class_of_the_retrieving_transformer(prefactor):
  task = QSTR(
    length=12, token_dim=4, sparsity=2, link=ReLUTeacher(width=6), codes="incoherent",
    encoding_prefactor=prefactor,
  )  # fmt: skip
  planted = task.init(jax.random.key(0))
  own = retrieval_class(task, planted, radius=3.0, eps=0.1)
  built = retrieval_transformer(task, planted, radius=3.0, eps=0.1)
  # With the prefactor its own matrices; without, those that give the same scores.
  scale = 1.0 if prefactor else task.sparsity / task.token_dim
  for matrix in np.asarray(built.params["W_QK"]) * scale:
    assert np.sum(np.linalg.norm(matrix, axis=0)) == pytest.approx(own.r_QK, rel=1e-5)
  hidden, output = built.params["hidden"], built.params["output"]["kernel"]
  joined = np.vstack([hidden["kernel"], hidden["bias"]])
  assert np.linalg.norm(joined) == pytest.approx(own.R_w, rel=1e-5)
  assert np.linalg.norm(output) == pytest.approx(own.r_a, rel=1e-5)
  leaves = jax.tree.leaves(built.params)
  assert own.num_parameters == sum(leaf.size for leaf in leaves)
  assert (own.length, own.input_dim) == (12, task.input_dim)


def test_class_of_the_recurrent_network():
  task = QSTR(length=8, token_dim=3, indices=shared, codes="incoherent")
  built = recurrent_retrieval(task, task.init(jax.random.key(1)), radius=4.0)
  own = class_of(built, task.length)
  leaves = jax.tree.leaves(built.params)
  assert own.num_parameters == sum(leaf.size for leaf in leaves)
  assert (
    pytest.approx(np.sqrt(sum(np.sum(leaf**2) for leaf in leaves)), rel=1e-5) == own.R
  )
  assert own.transition[0] == len(built.model.transition_widths) + 1
  assert own.read_out[0] == len(built.model.output_widths) + 1
  assert (own.length, own.r_h) == (8, 4.0)


def test_a_link_that_is_no_network_is_refused():
  task = QSTR(link=SquaredNorm())
  with pytest.raises(InvalidSetting, match="link: got 'squared_norm'"):
    retrieval_class(task, task.init(jax.random.key(0)), radius=1.0, eps=0.1)

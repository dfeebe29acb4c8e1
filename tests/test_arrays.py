"""Tests see an error where an array has not the shape or dtype that is annotated."""

import jax
import jax.numpy as jnp
import jaxtyping
import pytest

from sepfx.models import Transformer
from sepfx.tasks import QSTR
from sepfx.tasks.fourier import parities
from sepfx.tasks.objectives import prompt_errors


@pytest.mark.parametrize(
  ("function", "arguments"),
  [
    (prompt_errors, (jnp.zeros((4, 3)), jnp.zeros((4, 1)))),
    (parities, (jnp.zeros((4, 3)), jnp.zeros((2, 3)))),
    (QSTR().check_draw, (jax.random.key(0),)),
    (Transformer().init, (jax.random.key(0), jnp.zeros((4, 3, 2), int))),
  ],
)
def test_arrays_are_checked(function, arguments):
  """All of these do without: they broadcast, or convert."""
  with pytest.raises(jaxtyping.TypeCheckError, match="whilst checking the parameters"):
    function(*arguments)

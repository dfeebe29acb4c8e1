"""Settings that differ have different fingerprints, equal ones the same."""

import functools
import json
import subprocess
import sys

import numpy as np
import optax
import pytest

from sepfx.models import FeedForward
from sepfx.provenance.fingerprints import fingerprint, without_code
from sepfx.tasks import QSTR, independent


def scaled(factor):
  return lambda N: factor * np.ones(N)


class Box:
  def __init__(self, content):
    self.content = content


@pytest.mark.parametrize(
  ("one", "other"),
  [
    (optax.sgd(1e-3), optax.sgd(1.0)),
    (optax.adam(1e-3), optax.adam(1e-3, b1=0.5)),
    (optax.adam(optax.cosine_decay_schedule(1e-3, 10)), optax.adam(1e-3)),
    (scaled(1.0), scaled(3.0)),
    (lambda N, k=1: N, lambda N, k=2: N),
    (functools.partial(sum, [1]), functools.partial(sum, [2])),
    (np.arange(5000), np.arange(5000) + (np.arange(5000) == 2500)),
    (np.zeros((2, 3)), np.zeros((3, 2))),
    (Box(1), Box(2)),
    ({"a", "b"}, {"a", "c"}),
    (FeedForward((3, 2)), FeedForward((2, 3))),
    (QSTR(token_scales=scaled(1.0)), QSTR(token_scales=scaled(3.0))),
  ],
)
def test_what_differs(one, other):
  assert fingerprint(one) == fingerprint(one)
  assert fingerprint(one) != fingerprint(other)
  assert " at 0x" not in json.dumps([fingerprint(one), fingerprint(other)])


def test_what_earlier_versions_wrote_of_code_is_left_out():
  def was(found):
    code = {"code": "0c1d", "globals": {"G": {"function": "own:g", "code": "2e3f"}}}
    return {**found, **code, "closure": [{"class": "own:M", "methods": {"f": code}}]}

  now = {"function": "scaled.<locals>.<lambda>", "closure": ["own:M"]}
  assert without_code([was(now)]) == [now]
  plain = fingerprint(QSTR(token_scales=scaled(1.0)))
  assert without_code(plain) == plain


def test_functions_that_can_be_imported_have_their_names():
  assert fingerprint(independent) == "sepfx.tasks.indices:independent"
  assert fingerprint(QSTR(length=3), but="length") == fingerprint(
    QSTR(length=4), but="length"
  )


def test_a_function_that_calls_itself():
  def factorial(n):
    return n * factorial(n - 1) if n else 1

  assert fingerprint(factorial) == fingerprint(factorial)


def test_the_same_in_another_process():
  code = (
    "import json, optax; from sepfx.provenance.fingerprints import fingerprint\n"
    "own = {'a', 'b', 'c', 'd'}\n"
    "print(json.dumps([fingerprint(own), fingerprint(optax.adam(1e-3))]))"
  )
  texts = {
    subprocess.run(
      [sys.executable, "-c", code], check=True, capture_output=True, text=True
    ).stdout
    for _ in range(3)
  }
  assert len(texts) == 1

"""The ends of each setting's domain: the last value that is taken, the first refused."""

import pytest

from sepfx.errors import InvalidSetting
from sepfx.tasks import QSTR, HalfFixed
from sepfx.training import ERM, AdamW, Online

TOO_MANY_STEPS = 2**31


@pytest.mark.parametrize(
  ("kind", "name", "taken", "refused", "others"),
  [
    (Online, "batch_size", 1, 0, {}),
    (Online, "check_every", 1, 0, {}),
    (Online, "num_test", 1, 0, {}),
    (Online, "max_samples", 640, 639, {}),
    (Online, "max_samples", 64 * TOO_MANY_STEPS - 1, 64 * TOO_MANY_STEPS, {}),
    (Online, "l2", 0.0, -1e-9, {}),
    (Online, "gradient_penalty", 0.0, -1e-9, {}),
    (Online, "init_scale", 1e-9, 0.0, {}),
    (ERM, "sample_size", 1, 0, {}),
    (ERM, "batch_size", 1, 0, {}),
    (ERM, "batch_size", 7, 8, {"sample_size": 7}),
    (ERM, "check_every", 1, 0, {}),
    (ERM, "num_test", 1, 0, {}),
    (ERM, "threshold", 1e-9, 0.0, {}),
    (ERM, "max_steps", 10, 9, {}),
    (ERM, "max_steps", TOO_MANY_STEPS - 1, TOO_MANY_STEPS, {}),
    (ERM, "gradient_penalty", None, 0.1, {"watched": "grad_norm"}),
    (AdamW, "learning_rate", 1.2e-38, 1.1e-38, {}),
    (AdamW, "weight_decay", 0.0, -1e-9, {}),
    (AdamW, "clip_norm", 0.0, -1e-9, {}),
    (AdamW, "rho", 1e-9, 0.0, {}),
    (AdamW, "warmup_steps", 0, -1, {}),
    (AdamW, "decay_steps", 4, 3, {"warmup_steps": 3}),
    (AdamW, "decay_steps", 0, -1, {}),
    (QSTR, "length", 2, 1, {}),
    (QSTR, "length", 2**20, 2**20 + 1, {}),
    (QSTR, "token_dim", 1, 0, {}),
    (QSTR, "token_dim", 2**20, 2**20 + 1, {}),
    (QSTR, "sparsity", 1, 0, {}),
    (QSTR, "sparsity", 5, 6, {"length": 5}),
    (QSTR, "sparsity", 100, 101, {"length": 300}),
    (QSTR, "sparsity", 2, 3, {"length": 5, "indices": HalfFixed()}),
    (QSTR, "sparsity", 1, 2, {"length": 4, "indices": HalfFixed()}),
    (QSTR, "code_dim", 1, 0, {}),
    (QSTR, "code_dim", 2**20, 2**20 + 1, {}),
    (QSTR, "max_length", 10, 9, {"length": 10}),
    (QSTR, "max_length", 2**20, 2**20 + 1, {}),
    (QSTR, "places", "first", "random", {}),
  ],
)
def test_ends_of_domains(kind, name, taken, refused, others):
  assert getattr(kind(**{name: taken}, **others), name) == taken
  with pytest.raises(InvalidSetting) as error:
    kind(**{name: refused}, **others)
  assert error.value.setting == name

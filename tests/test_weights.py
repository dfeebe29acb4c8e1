"""Trained weights on disk: read without sepfx, and as modules."""

import json
import pathlib

import flax.linen as nn
import jax
import numpy as np
import pytest
import safetensors.numpy

import sepfx
from experiments.qstr.query_key import block_statistics
from sepfx import InvalidSetting, descriptions
from sepfx.models import (
  GRU,
  ClsTransformer,
  FeedForward,
  OnBits,
  Transformer,
  query_key_products,
)
from sepfx.records import weights
from sepfx.records.run_directory import RunDirectory
from sepfx.tasks import QSTR
from sepfx.trusted import known_classes
from tests import small

ROOT = pathlib.Path(__file__).parent.parent

MODELS = [
  Transformer(num_heads=2, width=5),
  FeedForward((3, 4), num_outputs=2),
  OnBits(GRU(units=3, num_outputs=2)),
  ClsTransformer(num_heads=2, width=8),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_modules_are_made_again_from_their_description(model):
  description = json.loads(json.dumps(descriptions.described(model)))
  assert descriptions.rebuilt(description, known_classes()) == model


class WithFunction(nn.Module):
  activation: object = nn.relu


def test_what_is_no_json_is_not_made_up():
  description = descriptions.described(WithFunction(activation=lambda x: x))
  assert set(description) == {"repr"}
  assert descriptions.rebuilt(description, {}) is None


@pytest.fixture
def kept(tmp_path):
  model = small.MODEL
  inputs = jax.random.normal(jax.random.key(0), (4, 3, small.TASK.input_dim))
  params = jax.tree.map(np.asarray, model.init(jax.random.key(1), inputs)["params"])
  name = "task=qstr/model=m/length=3/trial=0"
  with RunDirectory(tmp_path) as directory:
    directory.write(weights.path_of(name), weights.serialised(name, model, params))
  return tmp_path, name, inputs, params


@pytest.mark.usefixtures("exact")
def test_a_file_is_read_without_sepfx(kept):
  directory, name, inputs, params = kept
  file = directory / "weights/task=qstr/model=m/length=3/trial=0.safetensors"
  arrays = safetensors.numpy.load_file(file)
  with safetensors.safe_open(file, "numpy") as opened:
    metadata = opened.metadata()
  assert metadata["trial"] == name
  assert json.loads(metadata["model"])["fields"]["width"] == 20
  # The published Transformer's output, from the arrays alone.
  q, k, v = (
    np.einsum("nid,dhe->nhie", inputs, arrays[f"{part}/kernel"])
    + arrays[f"{part}/bias"][:, None]
    for part in ("query", "key", "value")
  )
  scores = np.einsum("nhie,nhje->nhij", q, k) / np.sqrt(q.shape[-1])
  heads = np.einsum("nhij,nhje->nihe", np.asarray(nn.softmax(scores)), v)
  mixed = np.einsum("nihe,hed->nid", heads, arrays["out/kernel"]) + arrays["out/bias"]
  hidden = np.maximum(mixed @ arrays["hidden/kernel"] + arrays["hidden/bias"], 0)
  outputs = (hidden @ arrays["output/kernel"] + arrays["output/bias"])[..., 0]
  expected = small.MODEL.apply({"params": params}, inputs)
  np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_models_come_back_with_their_weights(kept):
  directory, name, inputs, params = kept
  models = weights.Kept(directory, [name, "another"])
  assert list(models) == [name]
  assert models[name].model == small.MODEL
  np.testing.assert_array_equal(
    models[name](inputs), small.MODEL.apply({"params": params}, inputs)
  )
  with pytest.raises(KeyError):
    models["another"]


def test_what_is_no_run_is_refused(tmp_path):
  with pytest.raises(InvalidSetting, match="the directory of a run"):
    sepfx.load(tmp_path)


def test_the_run_of_figure_2():
  """Its records in the documentation, weights included, pass the figure's checks."""
  records = sepfx.load(ROOT / "docs/results/attention_weights")
  (name,) = records.names(trial=0)
  trained = records.models[name]
  assert trained.model == Transformer()
  assert records.table["outcome"].tolist() == ["reached"]
  task = QSTR(length=100)
  (learned,) = query_key_products(trained.params, task.input_dim)
  found = block_statistics(np.asarray(learned), task.token_dim, task.resolved_code_dim)
  assert found["share_in_block"] >= 0.99
  assert found["rows_won_by_diagonal"] == 1.0
  assert found["mean_diagonal"] >= 5 * found["mean_off_diagonal"]
  summary = json.loads((ROOT / "docs/results/attention_weights/summary.json").read_text())
  assert summary["learned"] == pytest.approx(found)

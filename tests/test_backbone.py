"""The backbone: mixers layer by layer, positions, norms, initial weights, its state."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sepfx.errors import InvalidSetting
from sepfx.models.mixers import GRU, Attention, Backbone, DeltaNet, check_causal

pytestmark = pytest.mark.usefixtures("exact")

WIDTH = 8


@functools.cache
def rows():
  return jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, WIDTH)), np.float32)


def test_a_backbones_state_is_that_of_its_layers():
  of_delta, of_gru = DeltaNet(width=8), GRU(width=8)
  backbone = Backbone("delta+gru", num_layers=3, width=8, convolution=3, vocabulary=4)
  layers = [of_delta, of_gru, of_delta]
  own = sum(mixer.state_size(5) for mixer in layers)
  assert backbone.state_size(5) == own + 3 * 2 * 8
  memories = sum(mixer.state_size(5, caches=False) for mixer in layers)
  assert backbone.state_size(5, caches=False) == memories
  assert Backbone(nn.Dense(8), width=8).state_size(5) is None


@functools.cache
def tokens():
  return jnp.asarray(np.random.default_rng(0).integers(0, 11, size=(3, 9)))


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal"])
@pytest.mark.parametrize("norm", ["none", "layer", "rms"])
def test_a_backbone_is_causal_and_gives_a_head_where_it_is_asked(positions, norm):
  model = Backbone(
    "attention:num_heads=2,delta", vocabulary=11, positions=positions, norm=norm,
    convolution=2, width=WIDTH,
  )  # fmt: skip
  check_causal(model, tokens(), "the backbone")
  logits, variables = model.init_with_output(jax.random.key(0), tokens())
  assert logits.shape == (3, 9, 11)
  asked = jnp.array([[0, 8], [3, 3], [5, 1]])
  found = model.apply(variables, (tokens(), asked))
  wanted = jnp.take_along_axis(logits, asked[..., None], axis=1)
  np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_learned_positions_are_for_the_sequences_at_the_beginning_and_shorter_ones():
  model = Backbone("gru", vocabulary=11, positions="learned", width=WIDTH)
  variables = model.init(jax.random.key(0), tokens())
  whole = model.apply(variables, tokens())
  np.testing.assert_allclose(
    model.apply(variables, tokens()[:, :5]), whole[:, :5], atol=1e-6
  )
  with pytest.raises(InvalidSetting, match=r"positions.*more than 9.*of 18"):
    model.apply(variables, jnp.tile(tokens(), 2))


def test_a_backbone_has_mixers_layer_by_layer():
  model = Backbone(
    ("gru:state_dim=3", Attention(width=WIDTH)), num_layers=3, width=WIDTH, mlp_width=0
  )
  own = model.init(jax.random.key(0), rows())["params"]
  assert own["mixer_0"]["hidden_kernel"].shape == (3, 9)
  assert "query_key_value" in own["mixer_1"]
  assert own["mixer_2"]["hidden_kernel"].shape == (3, 9)
  assert not any("widen" in name for name in own)
  assert model.apply({"params": own}, rows()).shape == (2, 4)


def test_weights_of_gpt2_begin_smaller_where_outputs_are_added():
  model = Backbone(vocabulary=50, width=64, num_layers=8, scheme="gpt2", tied=True)
  own = model.init(jax.random.key(0), tokens())["params"]
  assert "head" not in own
  deviation = {
    "embedding": own["embedding"]["embedding"],
    "first": own["mixer_0"]["query_key_value"]["kernel"],
    "last": own["mixer_0"]["output"]["kernel"],
    "narrow": own["narrow_7"]["kernel"],
  }
  found = {name: float(jnp.std(value)) for name, value in deviation.items()}
  assert found["embedding"] == pytest.approx(0.02, rel=0.1)
  assert found["first"] == pytest.approx(0.02, rel=0.1)
  assert found["last"] == pytest.approx(0.005, rel=0.1)
  assert found["narrow"] == pytest.approx(0.005, rel=0.1)


@pytest.mark.parametrize(
  ("fields", "what"),
  [
    ({"mixers": "attentive"}, "mixers.*attentive"),
    ({"mixers": "attention:heads=2"}, "mixers.*heads"),
    ({"mixers": 3}, "mixers"),
    ({"vocabulary": 11}, "vocabulary"),
    ({"tied": True}, "tied"),
    ({"norm": "lyer"}, "norm"),
    ({"positions": "rotary"}, "positions"),
    ({"scheme": "xavier"}, "scheme"),
    ({"mixers": ()}, "mixers"),
    ({"mixers": "attention:width=3"}, "mixers.*width"),
    ({"num_layers": 0}, "num_layers"),
  ],
)
def test_a_backbone_says_what_it_takes(fields, what):
  with pytest.raises(InvalidSetting, match=what):
    Backbone(**fields).init(jax.random.key(0), rows())

"""Mixers by their names."""

import re

from sepfx.models.mixers.attention import Attention
from sepfx.models.mixers.convolution import BaseConvolution, Hyena
from sepfx.models.mixers.delta import DeltaNet, GatedDeltaNet
from sepfx.models.mixers.linear import (
  Based,
  GatedLinearAttention,
  LinearAttention,
  Mamba2,
)
from sepfx.models.mixers.mixer import Mixer
from sepfx.models.mixers.recurrent import GRU, RGLRU, MinGRU
from sepfx.models.mixers.rwkv import RWKV7

MIXERS: dict[str, type[Mixer]] = {
  "attention": Attention,
  "linear_attention": LinearAttention,
  "based": Based,
  "gla": GatedLinearAttention,
  "delta": DeltaNet,
  "gated_delta": GatedDeltaNet,
  "mamba2": Mamba2,
  "rwkv7": RWKV7,
  "base_convolution": BaseConvolution,
  "hyena": Hyena,
  "rg_lru": RGLRU,
  "min_gru": MinGRU,
  "gru": GRU,
}


def taking_turns(text: str) -> list[str]:
  """The specifications of mixers that take turns, layer by layer: between "," or "+"."""
  return re.split(r"\s*[,+]\s*", text.strip())

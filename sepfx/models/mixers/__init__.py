"""Causal sequence mixers, [n N D] -> [n N D], to be exchanged for one another.

Each is a `flax.linen` module that can be used alone. `MIXERS` has their names, and a
`Backbone` is what they are usually in.
"""

from sepfx.models.building.causality import check_causal
from sepfx.models.mixers.attention import Attention
from sepfx.models.mixers.backbone import Backbone
from sepfx.models.mixers.convolution import BaseConvolution, Hyena
from sepfx.models.mixers.delta import DeltaNet, GatedDeltaNet
from sepfx.models.mixers.linear import (
  Based,
  GatedLinearAttention,
  LinearAttention,
  Mamba2,
)
from sepfx.models.mixers.mixer import Mixer, ShortConvolution
from sepfx.models.mixers.named import MIXERS, taking_turns
from sepfx.models.mixers.recurrent import GRU, RGLRU, MinGRU
from sepfx.models.mixers.rwkv import RWKV7

__all__ = [
  "GRU",
  "MIXERS",
  "RGLRU",
  "RWKV7",
  "Attention",
  "Backbone",
  "BaseConvolution",
  "Based",
  "DeltaNet",
  "GatedDeltaNet",
  "GatedLinearAttention",
  "Hyena",
  "LinearAttention",
  "Mamba2",
  "MinGRU",
  "Mixer",
  "ShortConvolution",
  "check_causal",
  "taking_turns",
]

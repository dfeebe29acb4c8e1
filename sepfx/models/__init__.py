"""Who learns: plain `flax.linen` modules that map inputs [n N D] to outputs [n N].

Or, for tasks of bits, [n T] to logits [n 2] or numbers [n], and for chains of bits to
logits [n L 2]. They know nothing of trials, flags or files and can be used alone in any
JAX project. `build` is where the published configurations have their names.
"""

from sepfx.models import mixers
from sepfx.models.building.evaluation import evaluate, evaluates_many, predict
from sepfx.models.building.factories import (
  check_module,
  factory_name,
  made,
  makes_modules,
)
from sepfx.models.building.fields import has_field, record_name, with_fields
from sepfx.models.building.published import NAMES, build
from sepfx.models.building.sizes import check_sized, sized
from sepfx.models.causal_transformer import CausalTransformer
from sepfx.models.channel_transformer import ChannelTransformer
from sepfx.models.cls_transformer import ClsTransformer
from sepfx.models.convolution import Convolution
from sepfx.models.deep_transformer import DeepTransformer
from sepfx.models.dense_first import DenseFirst
from sepfx.models.feedforward import FeedForward
from sepfx.models.layers.cls_attention import ClsAttention, InputMap
from sepfx.models.layers.network import Network
from sepfx.models.linear_attention import LinearAttention
from sepfx.models.linear_recurrences import LRU, MinGRU
from sepfx.models.on_bits import OnBits
from sepfx.models.read_out_transformer import ReadOutTransformer
from sepfx.models.recurrent import GRU, LSTM, RNN
from sepfx.models.residual_rnn import ResidualRNN
from sepfx.models.tokens_first import TokensFirst
from sepfx.models.transformer import Transformer, query_key_products

__all__ = [
  "GRU",
  "LRU",
  "LSTM",
  "NAMES",
  "RNN",
  "CausalTransformer",
  "ChannelTransformer",
  "ClsAttention",
  "ClsTransformer",
  "Convolution",
  "DeepTransformer",
  "DenseFirst",
  "FeedForward",
  "InputMap",
  "LinearAttention",
  "MinGRU",
  "Network",
  "OnBits",
  "ReadOutTransformer",
  "ResidualRNN",
  "TokensFirst",
  "Transformer",
  "build",
  "check_module",
  "check_sized",
  "evaluate",
  "evaluates_many",
  "factory_name",
  "has_field",
  "made",
  "makes_modules",
  "mixers",
  "predict",
  "query_key_products",
  "record_name",
  "sized",
  "with_fields",
]

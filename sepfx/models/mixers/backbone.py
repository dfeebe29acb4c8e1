"""Layers of exchangeable mixers: tokens or vectors in, numbers at each position out."""

from __future__ import annotations

import inspect
import numbers
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from sepfx import specifications
from sepfx.errors import require, require_positive
from sepfx.models.building import modes
from sepfx.models.deep_transformer import positions
from sepfx.models.layers.initializers import MixerScheme
from sepfx.models.layers.network import Network, check_inputs
from sepfx.models.mixers.mixer import ShortConvolution, rms_normalised
from sepfx.models.mixers.named import MIXERS, taking_turns

Positions = Literal["none", "learned", "sinusoidal"]
Norm = Literal["none", "layer", "rms"]


class Backbone(Network):
  """Blocks of a norm, a mixer and a residual connection, then of a norm and an MLP.

  Tokens are embedded, vectors projected. The rows of a residual stream are mixed, layer
  by layer. A last norm and a linear head follow. All of it is causal if the mixers are.

  Attributes:
    mixers: who mixes. One of `MIXERS` with fields, as in
      "attention:num_heads=2"; "package.module:factory" for what is called with `width`
      and the fields that are given; or a module [n N width] -> [n N width]. One whose
      call takes `train` or `deterministic` is told whether it learns: where there is a
      key "dropout". Several, in a tuple or separated by "," or "+", are for one layer
      each, and again from the first.
    num_layers: L.
    width: of the residual stream.
    vocabulary: tokens that there are, for inputs of integers; None for vectors.
    num_outputs: numbers at each position; None for one for each token of the vocabulary,
      or for a single number.
    positions: what is added to the rows first: nothing, vectors that are learned for each
      position of the sequences that it begins with, or sines and cosines.
    norm: before each part of a block and before the head.
    residual: whether there are residual connections.
    mlp_width: hidden units of a layer's MLP, with GELU; None for 4 times the width, 0 for
      no MLP.
    convolution: tokens that a short convolution before each mixer sees, with SiLU; 0 for
      none.
    tied: whether the head has the embedding's weights, and no biases.
    scheme: initial weights, "torch", "flax" or "gpt2".
    dtype, param_dtype: types of the computation and the parameters, as in `Network`.

  Raises:
    InvalidSetting: when it is initialised or applied, for a mixer that is none, and for
      sequences that are longer than learned positions are.
  """

  mixers: Any = "attention"
  num_layers: int = 2
  width: int = 64
  vocabulary: int | None = None
  num_outputs: int | None = None
  positions: Positions = "none"
  norm: Norm = "layer"
  residual: bool = True
  mlp_width: int | None = None
  convolution: int = 0
  tied: bool = False
  scheme: MixerScheme = "torch"

  @nn.compact
  def __call__(
    self, inputs: Num[Array, "n N *D"] | tuple[Array, Array]
  ) -> Float[Array, "n M *outputs"]:
    """Returns the head's numbers.

    Args:
      inputs: tokens [n N], or vectors [n N D], for answers at all positions; or a pair of
        them and of the positions at which to answer, [n M].
    """
    self._check()
    asked = None
    if isinstance(inputs, tuple):
      inputs, asked = inputs
    embedded, embedding = self._embedded(inputs)
    rows = self._positioned(embedded)
    hidden = 4 * self.width if self.mlp_width is None else self.mlp_width
    for k in range(self.num_layers):
      mixed = self._normalised(rows, f"norm_{k}")
      if self.convolution:
        short = ShortConvolution(
          self.width, self.convolution, name=f"convolution_{k}", **self.types
        )
        mixed = short(mixed)
      mixer = self._mixer(k)
      args, kwargs = modes.told(mixer, learns=self.has_rng("dropout"))
      own = mixer(mixed, *args, **kwargs)
      array = isinstance(own, jax.Array)
      gave = f"{own.dtype} {own.shape}" if array else type(own).__name__
      takes = f"mixers of real numbers {mixed.shape} to such (mixer_{k} gave {gave})"
      real = array and jnp.issubdtype(own.dtype, jnp.floating)
      require(real and own.shape == mixed.shape, "mixers", self.mixers, takes)
      rows = rows + own if self.residual else own
      if hidden:
        wide = self.linear(self.width, hidden, name=f"widen_{k}")
        narrow = self.linear(hidden, self.width, depth=self._depth, name=f"narrow_{k}")
        own = narrow(nn.gelu(wide(self._normalised(rows, f"mlp_norm_{k}"))))
        rows = rows + own if self.residual else own
    rows = self._normalised(rows, "last_norm")
    if asked is not None:  # a head for a large vocabulary is most of the work
      rows = jnp.take_along_axis(rows, asked[..., None], axis=1)
    if embedding is not None and self.tied:
      return embedding.attend(rows)
    outputs = self.num_outputs or self.vocabulary
    found = self.linear(self.width, outputs or 1, name="head")(rows)
    return found if outputs else found[..., 0]

  @nn.nowrap
  def state_size(self, length: int, *, caches: bool = True) -> int | None:
    """Numbers that are carried from token to token, of all layers.

    Args:
      length: tokens of the sequence.
      caches: whether those count that short convolutions keep; for most mixers zoology
        leaves them out.

    Returns:
      None where a mixer does not say how many it has, by a `state_size` as `Mixer` has.
    """
    kept = max(self.convolution - 1, 0) * self.width if caches else 0
    total = 0
    for k in range(self.num_layers):
      own = _state_size(self._mixer(k), length, caches)
      if own is None:
        return None
      total += kept + own
    return total

  def _check(self) -> None:
    require_positive(self, "num_layers", "width", "vocabulary", "num_outputs")
    kinds = {"positions": Positions, "norm": Norm, "scheme": MixerScheme}
    for name, kind in kinds.items():
      names = get_args(kind)
      require(getattr(self, name) in names, name, getattr(self, name), ", ".join(names))
    for name in ("convolution", "mlp_width"):
      own = getattr(self, name)
      require(own is None or own >= 0, name, own, "an integer >= 0")
    takes = "a head for each token of a vocabulary"
    same = self.vocabulary is not None and self.num_outputs in (None, self.vocabulary)
    require(same or not self.tied, "tied", self.tied, takes)

  @property
  def _depth(self) -> int:
    """Parts whose outputs are added to the residual stream."""
    return self.num_layers * (1 if self.mlp_width == 0 else 2)

  def _embedded(self, inputs: Array) -> tuple[Array, nn.Embed | None]:
    integers = jnp.issubdtype(inputs.dtype, jnp.integer)
    check_inputs(inputs, "n N" if integers else "n N D")
    takes = "a number of tokens for inputs of integers, none for vectors"
    require(
      integers == (self.vocabulary is not None), "vocabulary", self.vocabulary, takes
    )
    if self.vocabulary is None:
      layer = self.linear(inputs.shape[-1], self.width, name="embedding")
      return layer(self.cast(inputs)), None
    init = nn.initializers.normal(0.02 if self.scheme == "gpt2" else 1.0)
    embedding = nn.Embed(
      self.vocabulary, self.width, embedding_init=init, name="embedding", **self.types
    )
    return embedding(inputs), embedding

  def _positioned(self, rows: Array) -> Array:
    N = rows.shape[1]
    if self.positions == "sinusoidal":
      return rows + positions(N, self.width).astype(rows.dtype)
    if self.positions == "learned":
      init, most = nn.initializers.normal(0.02), N
      if self.has_variable("params", "positions"):
        most = self.get_variable("params", "positions").shape[0]
      takes = f"none for sequences of more than {most} tokens, such as these of {N}"
      require(most >= N, "positions", "learned", takes)
      own = self.weights("positions", init, (most, self.width))
      return rows + own[:N].astype(rows.dtype)
    return rows

  def _normalised(self, rows: Array, name: str) -> Array:
    if self.norm == "layer":
      return nn.LayerNorm(epsilon=1e-5, name=name, **self.types)(rows)
    if self.norm == "rms":
      scale = self.weights(f"{name}_scale", nn.initializers.ones, (self.width,))
      return rms_normalised(rows) * scale
    return rows

  @nn.nowrap
  def _mixer(self, layer: int) -> nn.Module:
    own = self.mixers
    names = taking_turns(own) if isinstance(own, str) else own
    names = names if isinstance(names, tuple | list) else (names,)
    takes = f"at least one mixer, and at most one for each of {self.num_layers} layers"
    require(0 < len(names) <= self.num_layers, "mixers", own, takes)
    return self._made(names[layer % len(names)], f"mixer_{layer}")

  @nn.nowrap
  def _made(self, own: Any, name: str) -> nn.Module:
    if isinstance(own, nn.Module):
      return own.copy(name=name)
    takes = f"{', '.join(MIXERS)}, package.module:factory, or a module"
    require(isinstance(own, str), "mixers", own, takes)
    specification = specifications.parse(own, "mixers")
    known = MIXERS.get(specification.name)
    target = known or specifications.imported(specification.name, "mixers", takes)
    require(callable(target), "mixers", own, takes)
    fields = specifications.typed(specification, target, "mixers")
    takes = "no width: the backbone has one"
    require("width" not in fields, "mixers", own, takes)
    if known:
      ours = {"scheme": self.scheme, "depth": self._depth, **self.types}
      fields = {**ours, **fields}
    made = target(width=self.width, **fields)
    takes = f"a flax.linen module (it made a {type(made).__name__})"
    require(isinstance(made, nn.Module), "mixers", own, takes)
    return made.copy(name=name)


def _state_size(mixer: nn.Module, length: int, caches: bool) -> int | None:
  """Of one mixer, which may know nothing of caches, or not say at all."""
  counted = getattr(mixer, "state_size", None)
  if counted is None:
    return None
  takes = "mixers of which state_size, if they have it, is a method (self, length)"
  require(callable(counted), "mixers", type(mixer).__name__, takes)
  known = "caches" in inspect.signature(counted).parameters
  try:
    size = counted(length, **({"caches": caches} if known else {}))
  except NotImplementedError:
    return None
  takes = "mixers of which state_size gives an integer, or None"
  proper = size is None or isinstance(size, numbers.Integral)
  require(proper, "mixers", size, takes)
  return None if size is None else int(size)

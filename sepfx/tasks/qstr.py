"""q-sparse token regression (Definition 2), its prompts and their encoding."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PRNGKeyArray

from sepfx import kinds
from sepfx.errors import InvalidSetting, require
from sepfx.tasks import codes as codes_lib
from sepfx.tasks import indices as indices_lib
from sepfx.tasks.indices import MAX_LENGTH, MAX_SPARSITY, IndexDistribution
from sepfx.tasks.links import LINKS, Link
from sepfx.tasks.normal import normal
from sepfx.tasks.objectives import REGRESSION, Objective

_NAMES = {indices_lib.independent: "qstr", indices_lib.shared: "simple_qstr"}


_PLACES = ("first", "random")


class Planted(NamedTuple):
  """What a task hides from the learner: its codes and its link's parameters."""

  codes: Float[Array, "N_max d_e"]
  link: Any


class Prompts(NamedTuple):
  """A sample of n prompts and labels (Definition 2), indices counted from 0.

  Attributes:
    tokens: x_i.
    indices: t_i.
    labels: y_i.
    places: which code each token has; None where token i has code i.
  """

  tokens: Float[Array, "n N d"]
  indices: Int[Array, "n N q"]
  labels: Float[Array, "n N"]
  places: Int[Array, "n N"] | None = None


@dataclasses.dataclass(frozen=True)
class QSTR:
  """The qSTR data-generating model: y_i = g(x_{t_i1}, ..., x_{t_iq}).

  Pure: every method's randomness comes from its key. Two tasks that differ in
  `indices` alone share their planted parameters.

  Attributes:
    length: N, number of tokens in a prompt.
    token_dim: d.
    sparsity: q, number of tokens a label depends on, 1 <= q <= N.
    indices: distribution of (t_1, ..., t_N).
    link: g, or its name in `LINKS`.
    codes: kind of position codes, see `sepfx.tasks.codes.draw_codes`.
    code_dim: d_e; None for floor(5 ln N), N_max in place of N if that is given.
    max_length: N_max, number of codes, so that prompts of all lengths up to it are of one
      task; None for N.
    places: which N of N_max codes the tokens of a prompt have: "first", or "random",
      drawn anew for each prompt and in ascending order.
    token_scales: function N -> [N] of the standard deviations sigma_i, with
      x_i ~ N(0, sigma_i^2 I_d); None for ones.
    encoding_prefactor: True multiplies the codes by sqrt(d/q) (the theory,
      section 3); False leaves them at unit norm (the published experiments).

  Raises:
    InvalidSetting: for a setting outside its domain.
  """

  length: int = 10
  token_dim: int = 10
  sparsity: int = 1
  indices: IndexDistribution = indices_lib.independent
  link: Link = LINKS["linear"]
  codes: str = "rademacher"
  code_dim: int | None = None
  token_scales: Callable[[int], Any] | None = None
  encoding_prefactor: bool = False
  max_length: int | None = None
  places: Literal["first", "random"] = "first"

  def __post_init__(self):
    kinds.settle(self)
    takes = f"an integer >= 2, at most {MAX_LENGTH}"
    require(2 <= self.length <= MAX_LENGTH, "length", self.length, takes)
    takes = f"an integer from the length, here {self.length}, to {MAX_LENGTH}, or none"
    proper = self.max_length is None or self.length <= self.max_length <= MAX_LENGTH
    require(proper, "max_length", self.max_length, takes)
    require(self.places in _PLACES, "places", self.places, " or ".join(_PLACES))
    chosen = self.places == "first" or self.max_length is not None
    require(chosen, "places", self.places, "first, unless there is a max_length")
    takes = f"an integer >= 1, at most {MAX_LENGTH}"
    require(1 <= self.token_dim <= MAX_LENGTH, "token_dim", self.token_dim, takes)
    takes = f"an integer from 1 to the length, here {self.length}"
    require(1 <= self.sparsity <= self.length, "sparsity", self.sparsity, takes)
    takes = f"an integer from 1 to {MAX_SPARSITY}"
    require(self.sparsity <= MAX_SPARSITY, "sparsity", self.sparsity, takes)
    if isinstance(self.link, str):
      takes = f"{', '.join(LINKS)}, or a Link, such as Custom(function)"
      require(self.link in LINKS, "link", self.link, takes)
      object.__setattr__(self, "link", LINKS[self.link])
    require(
      isinstance(self.link, Link), "link", self.link, "a Link, such as Custom(function)"
    )
    require(
      self.codes in codes_lib.KINDS,
      "codes",
      self.codes,
      f"one of {', '.join(codes_lib.KINDS)}",
    )
    require(
      self.code_dim is None or 1 <= self.code_dim <= MAX_LENGTH,
      "code_dim",
      self.code_dim,
      f"an integer from 1 to {MAX_LENGTH}, or None for floor(5 ln N)",
    )
    scales = self.scales
    require(
      scales.shape == (self.length,) and bool(np.all(scales >= 0)),
      "token_scales",
      scales,
      f"a function that returns {self.length} non-negative numbers",
    )
    if isinstance(self.indices, indices_lib.HalfFixed):
      require(
        2 * self.sparsity < self.length,
        "sparsity",
        self.sparsity,
        f"less than length/2 = {self.length / 2} with half-fixed indices",
      )

  objective: ClassVar[Objective] = REGRESSION

  @property
  def name(self) -> str:
    """The name that records carry: qstr, simple_qstr or another distribution's."""
    if self.indices in _NAMES:
      return _NAMES[self.indices]
    kind = getattr(self.indices, "__name__", type(self.indices).__name__)
    return f"qstr_{kind.lower()}"

  @property
  def scales(self) -> np.ndarray:
    """Standard deviations of the tokens' coordinates, [N]."""
    if self.token_scales is None:
      return np.ones(self.length, jnp.result_type(float))
    with jax.ensure_compile_time_eval():  # it may be made with jnp
      return np.asarray(self.token_scales(self.length), jnp.result_type(float))

  @property
  def resolved_code_dim(self) -> int:
    """d_e."""
    return self.code_dim or codes_lib.default_code_dim(self.num_codes)

  @property
  def num_codes(self) -> int:
    """N_max, or N."""
    return self.max_length or self.length

  @property
  def input_dim(self) -> int:
    """D = d + (q + 1) d_e, the dimension of an encoded token."""
    return self.token_dim + (self.sparsity + 1) * self.resolved_code_dim

  def init(self, key: PRNGKeyArray) -> Planted:
    """Draws the planted parameters. Consumes `key`."""
    key_codes, key_link = jax.random.split(key)
    return Planted(
      codes_lib.draw_codes(key_codes, self.codes, self.num_codes, self.resolved_code_dim),
      self.link.init(key_link, self.sparsity, self.token_dim),
    )

  def sample(self, key: PRNGKeyArray, planted: Planted, num_prompts: int) -> Prompts:
    """Draws `num_prompts` independent prompts with their labels. Consumes `key`."""
    places = None
    if self.num_codes > self.length:
      key, key_places = jax.random.split(key)
      places = self._draw_places(key_places, num_prompts)
    key_tokens, key_indices = jax.random.split(key)
    scales = jnp.asarray(self.scales)
    shape = (num_prompts, self.length, self.token_dim)
    tokens = scales[:, None] * normal(key_tokens, shape)
    t = self.indices(key_indices, num_prompts, self.length, self.sparsity)
    return Prompts(tokens, t, self.label(planted, tokens, t), places)

  def _draw_places(self, key: PRNGKeyArray, num_prompts: int) -> Int[Array, "n N"]:
    if self.places == "first":
      return jnp.broadcast_to(jnp.arange(self.length), (num_prompts, self.length))
    shuffled = jax.random.uniform(key, (num_prompts, self.num_codes))
    order = jnp.argsort(shuffled, axis=1)
    return jnp.sort(order[:, : self.length], axis=1)

  def label(
    self, planted: Planted, tokens: Float[Array, "n N d"], t: Int[Array, "n N q"]
  ) -> Float[Array, "n N"]:
    """Returns y_i = g(x_{t_i1}, ..., x_{t_iq}) (Definition 2)."""
    n = tokens.shape[0]
    flat = t.reshape(n, -1, 1)
    named = jnp.take_along_axis(tokens, flat, axis=1)
    named = named.reshape(n, self.length, self.sparsity, self.token_dim)
    return self.link(planted.link, named, jnp.asarray(self.scales)[t])

  def encode(self, planted: Planted, prompts: Prompts) -> Float[Array, "n N D"]:
    """Returns z_i = (x_i, c omega_i, c omega_{t_i1}, ..., c omega_{t_iq}).

    c = sqrt(d/q) with `encoding_prefactor` (section 3), else 1 (as published).
    """
    n = prompts.tokens.shape[0]
    c = math.sqrt(self.token_dim / self.sparsity) if self.encoding_prefactor else 1.0
    codes = c * planted.codes
    if prompts.places is None:
      own = jnp.broadcast_to(codes, (n, *codes.shape))
      named = codes[prompts.indices]
    else:
      own = codes[prompts.places]
      flat = prompts.indices.reshape(n, -1)
      named = codes[jnp.take_along_axis(prompts.places, flat, axis=1)]
    named = named.reshape(n, self.length, -1)
    return jnp.concatenate([prompts.tokens, own, named], axis=-1)

  def best_constant_error(self) -> float:
    """Risk of the best constant: Var(y), averaged over positions.

    Exact where the link knows it; otherwise from 20,000 prompts of one fixed
    planted draw.
    """
    exact = self.link.variance(self.sparsity, self.token_dim)
    if exact is not None and self.token_scales is None:
      return exact
    planted = self.init(jax.random.key(0))
    labels = QSTR.sample(self, jax.random.key(1), planted, 20_000).labels
    return float(jnp.mean(jnp.var(labels, axis=0)))

  def uniform_attention_risk(self) -> float | None:
    """Risk of the best linear read-out of the prompt's mean token.

    (1 - 1/N) for the linear link on average over u, and 1/q - 1/N for the
    mean; None for links that are not linear or tokens that are not isotropic.
    """
    if self.token_scales is not None:
      return None
    if self.link.name not in ("linear", "mean"):
      return None
    return self.best_constant_error() - 1 / self.length

  def check_draw(self, keys: Key[Array, " k"]) -> None:
    """Raises `InvalidSetting` if the codes of one of `keys` [k] cannot be drawn.

    The same draws as `init` makes from the same keys.
    """
    if self.codes == "rademacher":
      return
    if self.codes == "distinct" and self.num_codes > 2**self.resolved_code_dim:
      possible = False
    else:
      with jax.debug_nans(False):  # it is what says that none were found
        possible = bool(jnp.all(jnp.isfinite(_drawn_codes(self, keys))))
    if not possible:
      wanted = "distinct" if self.codes == "distinct" else "of coherence <= 1/2"
      raise InvalidSetting(
        "code_dim",
        self.resolved_code_dim,
        f"a dimension in which {self.num_codes} codes that are {wanted} can be found "
        f"(no candidate was accepted in {codes_lib.MAX_TRIES} tries; the default "
        f"for them is {codes_lib.default_code_dim(self.num_codes)})",
      )


@functools.partial(jax.jit, static_argnums=0)  # cells of one task share the program
def _drawn_codes(task: QSTR, keys: Key[Array, " k"]) -> Float[Array, "k N_max d_e"]:
  return jax.vmap(lambda key: task.init(key).codes)(keys)


def first_half_scales(length: int) -> np.ndarray:
  """sigma_i = 1 for i < N/2 and 0 for i >= N/2, i from 1 (Propositions 3, 21)."""
  return (2 * np.arange(1, length + 1) < length).astype(np.float32)

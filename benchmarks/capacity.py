"""How far apart are risk and empirical risk of a trained model, and its bound?

    python -m benchmarks.capacity

Trains the module of Definition 3.2 on hidden ANDs and puts the bound of Lemmas A.12 and
2.2, with the norms that training ended with, beside the measured gap; both of the ramp
loss min(1, (1 - y f)_+) with labels y = +-1. The trained Transformer of appendix C.1
stands there, too, without a bound: no theorem covers its residual branches, layer norms
and learned positions.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import rich.console
import rich.table

from experiments.capacity import generalisation_bound, head_norms, heads_capacity
from sepfx.commands.command_line import prepare_jax
from sepfx.ensembles import Cell
from sepfx.models import ClsAttention, ClsTransformer, InputMap, predict
from sepfx.tasks import SparseBoolean
from sepfx.training import ERM

_LENGTHS, _SIZES = (10, 40), (25, 100)
_TOKEN_NORM = 2**0.5  # of a position plus a bit, orthogonal unit vectors


class _Logits(nn.Module):
  """The two logits of a module with one output, whose difference it is."""

  module: nn.Module

  @nn.compact
  def __call__(self, bits: jax.Array) -> jax.Array:
    output = self.module(bits)
    return jnp.stack([-output / 2, output / 2], axis=1)


def _gap(model: nn.Module, length: int, size: int) -> tuple[dict, float, float]:
  """Trains; returns the weights and the ramp loss on and off the sample."""
  task = SparseBoolean(length=length)
  protocol = ERM(sample_size=size, optimizer=optax.adam(1e-2), run_to_end=True)
  trial = protocol.trial(task, task, model, "capacity")
  seeds = jax.tree.map(lambda keys: keys[0], Cell(trial).seeds(0, 1))
  world = jax.jit(trial.world)(seeds)
  state = jax.jit(trial.init)(seeds)
  advance = jax.jit(trial.advance)
  while state.active:
    state = advance(state, world)
  losses = []
  for sample in (world.sample, world.test):
    logits = predict(model, state.params, task.encode(world.planted, sample))
    margin = (2 * sample.labels - 1) * (logits[:, 1] - logits[:, 0])
    losses.append(float(jnp.mean(jnp.clip(1 - margin, 0, 1))))
  return state.params, *losses


def main() -> None:
  prepare_jax()
  table = rich.table.Table(
    "model", "T", "m", "on the sample", "on others", "gap", "||w||", "V_inf", "V",
    "QK_inf", "C", "bound on the gap",
  )  # fmt: skip
  for length in _LENGTHS:
    for size in _SIZES:
      dim = length + 3
      module = ClsAttention(InputMap("deterministic", dim))
      params, on_sample, on_others = _gap(_Logits(module), length, size)
      own = params["module"]
      B_w = float(np.linalg.norm(own["w"]))
      heads = head_norms(own)
      capacity = heads_capacity(
        heads, d=dim, B_X=_TOKEN_NORM, num_samples=size, length=length + 1, B_w=B_w
      )
      largest = B_w * sum(head.V for head in heads) * _TOKEN_NORM
      bound = generalisation_bound(capacity, size, A=largest, b=1.0)
      measured = (f"{loss:.3f}" for loss in (on_sample, on_others))
      of_weights = (f"{norm:.2f}" for norm in (B_w, *heads[0]))
      gap = f"{on_others - on_sample:.3f}"
      case = (str(length), str(size))
      table.add_row(
        "Definition 3.2",
        *case,
        *measured,
        gap,
        *of_weights,
        f"{capacity:.1e}",
        f"{bound:.3g}",
      )
      _, on_sample, on_others = _gap(ClsTransformer(), length, size)
      measured = (f"{loss:.3f}" for loss in (on_sample, on_others))
      gap = f"{on_others - on_sample:.3f}"
      table.add_row("Transformer", *case, *measured, gap, *5 * [""], "not covered")
  rich.console.Console().print(table)


if __name__ == "__main__":
  main()

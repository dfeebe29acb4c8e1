"""How long a training step of each mixer takes, beside what it could and could not be.

    python -m benchmarks.mixers
    python -m benchmarks.mixers --lengths=64 --mixers=attention,delta

A mixer of width 64 maps sequences of N tokens; the step is the gradient of the mean
square of what comes out, in its weights and its inputs. Beside it stand the time that the
step's matrix products would take at the pace of a large one, and the gradient through the
same mixer token by token (`step` in a scan). With PyTorch (`pip install -e '.[bench]'`)
softmax attention and linear attention also stand beside eager programs of the same
layers. Numbers are the least of several calls.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import rich.console
import rich.table
from absl import app, flags

from benchmarks.products import matrix_peak
from sepfx.ensembles.operations import operations_of
from sepfx.models.mixers import MIXERS

flags.DEFINE_multi_integer("lengths", [64, 512], "N.")
flags.DEFINE_list("mixers", list(MIXERS), "Names of `sepfx.models.mixers.MIXERS`.")
flags.DEFINE_integer("sequences", 64, "Of a step at the shortest length; fewer beyond.")
flags.DEFINE_float("seconds", 2.0, "In which calls are repeated, three at least.")

FLAGS = flags.FLAGS

WIDTH = 64


def least(call: Callable[[], Any]) -> float:
  """Seconds of the fastest of several calls, after one that compiles."""
  call()
  times: list[float] = []
  while len(times) < 3 or sum(times) < FLAGS.seconds:
    start = time.perf_counter()
    call()
    times.append(time.perf_counter() - start)
  return min(times)


def steps_of(name: str, n: int, length: int) -> tuple[float, float, int]:
  """Seconds of a whole pass and of one token by token, and operations of products."""
  mixer = MIXERS[name](width=WIDTH)
  rows = jax.random.normal(jax.random.key(0), (n, length, WIDTH))
  variables = mixer.init(jax.random.key(1), rows)

  def whole(variables, rows):
    return jnp.mean(jnp.square(mixer.apply(variables, rows)))

  def by_token(variables, rows):
    def one(state, row):
      return mixer.apply(variables, state, row, method="step")

    start = mixer.init_state(n, length)
    outputs = jax.lax.scan(one, start, jnp.swapaxes(rows, 0, 1))[1]
    return jnp.mean(jnp.square(outputs))

  seconds = []
  for loss in (whole, by_token):
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1)))
    call = functools.partial(gradient, variables, rows)
    seconds.append(least(lambda call=call: jax.block_until_ready(call())))
  traced = jax.make_jaxpr(jax.grad(whole, argnums=(0, 1)))(variables, rows)
  return seconds[0], seconds[1], operations_of(traced.jaxpr)


def eager(name: str, n: int, length: int) -> float | None:
  """Seconds of the same step in eager PyTorch; None where it is not installed or there is
  no such layer."""
  try:
    import torch
  except ImportError:
    return None
  if name not in ("attention", "linear_attention"):
    return None
  device = "cuda" if torch.cuda.is_available() else "cpu"
  torch.backends.cuda.matmul.allow_tf32 = False
  bias = name == "attention"
  layers = [torch.nn.Linear(WIDTH, WIDTH, bias=bias, device=device) for _ in range(4)]
  rows = torch.randn(n, length, WIDTH, device=device, requires_grad=True)
  past = torch.tril(torch.ones(length, length, dtype=torch.bool, device=device))

  def call() -> None:
    query, key, value = (layer(rows) for layer in layers[:3])
    if name == "attention":
      read = torch.nn.functional.scaled_dot_product_attention(
        query[:, None], key[:, None], value[:, None], is_causal=True
      )[:, 0]
    else:
      query, key = (torch.nn.functional.elu(own) + 1 for own in (query, key))
      scores = (query @ key.transpose(1, 2)).masked_fill(~past, 0.0)
      read = scores @ value / scores.sum(dim=-1, keepdim=True)
    layers[3](read).square().mean().backward()
    if device == "cuda":
      torch.cuda.synchronize()

  return least(call)


def main(_: list[str]) -> None:
  console = rich.console.Console()
  peak = matrix_peak(1)
  for length in FLAGS.lengths:
    n = max(1, FLAGS.sequences * min(FLAGS.lengths) // length)
    table = rich.table.Table(
      "mixer", "ms", "over its products", "token by token over it",
      "eager PyTorch over it", title=f"{n} sequences of {length} tokens",
    )  # fmt: skip
    for name in FLAGS.mixers:
      seconds, by_token, operations = steps_of(name, n, length)
      other = eager(name, n, length)
      ratios = [seconds * peak / operations, by_token / seconds]
      ratios += [] if other is None else [other / seconds]
      cells = [name, f"{1e3 * seconds:.2f}", *(f"{own:.1f}" for own in ratios)]
      table.add_row(*cells)
    console.print(table)
  console.print(
    f"{jax.devices()[0].device_kind}: large products at {peak / 1e9:,.0f} Gflop/s. "
    f"JAX {jax.__version__}, NumPy {np.__version__}"
  )


if __name__ == "__main__":
  app.run(main)

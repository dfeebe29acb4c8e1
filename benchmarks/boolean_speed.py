"""How fast are AND trials, and evaluation by a table, on this device?

    pip install -e '.[bench]'
    python -m benchmarks.boolean_speed

The first table runs the published AND trial in eager PyTorch and here in turn, a check
being ten full-batch steps and an evaluation on 10,000 inputs; compilation is apart. The
second evaluates one model on 10,000 inputs: eager PyTorch on as many threads as a device
here has cores, the model's direct pass, and its table. The third is the compiler's own
count of what a training step and an evaluation cost, for projections.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import jax
import rich.console
import rich.table
import torch
from absl import app, flags

from benchmarks import boolean_baseline
from benchmarks.cells import cell
from benchmarks.clock import timed
from experiments.boolean import boolean_sample_complexity
from sepfx.commands import command_line
from sepfx.ensembles import Cell
from sepfx.models import evaluate, predict
from sepfx.training import Seeds

flags.DEFINE_list("contexts", ["100", "400"], "T.")
flags.DEFINE_integer("num_samples", 100, "m.")
flags.DEFINE_float("seconds", 20.0, "Time of each measurement, at least one check.")

FLAGS = flags.FLAGS
_NUM_TEST = boolean_baseline.NUM_TEST


def _time(action: Callable[[], None], seconds: float) -> float:
  """Returns seconds a call, after one that does not count."""
  action()
  start, calls = time.perf_counter(), 0
  while calls == 0 or time.perf_counter() - start < seconds:
    action()
    calls += 1
  return (time.perf_counter() - start) / calls


def theirs(length: int, num_samples: int) -> float:
  """Returns the baseline's seconds per step, evaluations included."""
  device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
  trial = boolean_baseline.Trial(length, num_samples, device)
  return _time(lambda: trial.advance(10), FLAGS.seconds) / 10


def cell_of(length: int, num_samples: int) -> Cell:
  """Returns a cell of Figure 4, to be trained on after success."""
  return cell(
    boolean_sample_complexity.STUDY,
    "boolean_fig4",
    contexts=length,
    sample_sizes=num_samples,
    max_steps=10**5,
    run_to_end=True,
  )


def ours(length: int, num_samples: int) -> tuple[float, float]:
  """Returns seconds per trial-step, evaluations included, and of compilation."""
  lanes = 1 if jax.devices()[0].platform == "cpu" else 32
  clock = timed(
    cell_of(length, num_samples),
    lanes * len(jax.devices()),
    lanes=lanes,
    enough=lambda clock: clock.steps > 0 and clock.seconds > FLAGS.seconds,
  )
  return clock.seconds / clock.steps, clock.compiled


def evaluations(length: int) -> tuple[float, float, float]:
  """Returns seconds of an evaluation by the baseline, the direct pass, the table."""
  trial = cell_of(length, FLAGS.num_samples).trial
  model, task = trial.model, trial.task
  planted = task.init(jax.random.key(0))
  bits = task.sample(jax.random.key(1), planted, _NUM_TEST).bits
  params = model.init(jax.random.key(2), bits[:1])["params"]

  # Weights are arguments: the compiler would compute a constant's table beforehand.
  @jax.jit
  def directly(params, bits):
    chunks = bits.reshape(-1, boolean_baseline.CHUNK, length)
    return jax.lax.map(lambda chunk: predict(model, params, chunk), chunks)

  @jax.jit
  def by_table(params, bits):
    return evaluate(model, params, bits)

  slow, fast = (
    _time(lambda own=own: jax.block_until_ready(own(params, bits)), FLAGS.seconds / 4)
    for own in (directly, by_table)
  )
  device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
  baseline = boolean_baseline.Trial(length, FLAGS.num_samples, device)
  threads = torch.get_num_threads()
  torch.set_num_threads(max(1, threads // len(jax.devices())))  # ours is on one device
  eager = _time(baseline.evaluate, FLAGS.seconds / 4)
  torch.set_num_threads(threads)
  return eager, slow, fast


def costs(length: int, num_samples: int) -> list[dict[str, float]]:
  """Returns XLA's counts for a step and an evaluation: "flops", "bytes accessed"."""
  trial = cell_of(length, num_samples).trial
  seeds = Seeds(jax.random.key(0), jax.random.key(1))
  shapes = trial.state_shapes(), jax.eval_shape(trial.world, seeds)
  step = functools.partial(trial.train, num_steps=1)
  return [
    jax.jit(f).lower(*shapes).compile().cost_analysis() for f in (step, trial.evaluate)
  ]


def main(_: list[str]) -> None:
  command_line.prepare_jax()
  console = rich.console.Console(highlight=False)
  console.print(
    f"{jax.devices()[0].device_kind}, {len(jax.devices())} devices, JAX "
    f"{jax.__version__}, PyTorch {torch.__version__}"
  )
  trials = rich.table.Table("T", "m", "PyTorch\nms", "sepfx\nms", "ratio", "compile\ns")
  tables = rich.table.Table(
    "T", "PyTorch\nms", "direct\nms", "table\nms", "PyTorch\n/ table", "direct\n/ table"
  )
  counts = rich.table.Table(
    "T", "step\nGFLOP", "step\nGB", "evaluation\nGFLOP", "evaluation\nGB"
  )
  for length in map(int, FLAGS.contexts):
    slow = theirs(length, FLAGS.num_samples)
    fast, compiled = ours(length, FLAGS.num_samples)
    trials.add_row(
      str(length), str(FLAGS.num_samples), f"{1e3 * slow:.2f}", f"{1e3 * fast:.2f}",
      f"{slow / fast:.1f}", f"{compiled:.1f}",
    )  # fmt: skip
    eager, slow, fast = evaluations(length)
    tables.add_row(
      str(length), f"{1e3 * eager:.1f}", f"{1e3 * slow:.1f}", f"{1e3 * fast:.1f}",
      f"{eager / fast:.1f}", f"{slow / fast:.1f}",
    )  # fmt: skip
    counted = costs(length, FLAGS.num_samples)
    counts.add_row(
      str(length),
      *(f"{c[k] / 1e9:.3f}" for c in counted for k in ("flops", "bytes accessed")),
    )
  console.print(trials)
  console.print("ms: per trial-step, evaluations included")
  console.print(tables)
  console.print(f"ms: {_NUM_TEST:,} inputs, without dropout")
  console.print(counts)
  console.print(f"counted by the compiler, a trial with m = {FLAGS.num_samples}")


if __name__ == "__main__":
  app.run(main)

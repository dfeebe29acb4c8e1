"""When does the published Transformer learn a parity in eager PyTorch?

    pip install -e '.[bench]'
    python -m benchmarks.parity
    python -m benchmarks.parity --paired

The trials of `experiments.parity`: whether steps to learn are spread alike tells a slow
task from a wrong model. All random numbers are PyTorch's own; or, paired, trial i starts
from the weights and trains on the batches that trial i of the same seed has there, and
only dropout's masks are other ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import rich.console
import torch
from absl import app, flags

from benchmarks import boolean_baseline
from benchmarks.cells import cells
from experiments.boolean import parity
from sepfx.models import predict
from sepfx.training import Online, Seeds, Trial

flags.DEFINE_list("contexts", ["10"], "T.")
flags.DEFINE_integer("num_trials", 10, "Trials at each T.")
flags.DEFINE_integer("max_steps", 2000, "Steps after which a trial is censored.")
flags.DEFINE_float("clip_norm", 1.0, "Of the global gradient norm; 0 for no clipping.")
flags.DEFINE_integer("seed", 0, "Seed of PyTorch's generator, and of paired trials.")
flags.DEFINE_bool("paired", False, "Weights and batches of `experiments.parity`.")

FLAGS = flags.FLAGS


class Setup(NamedTuple):
  """A trial before its first step; `batch` maps a step, from 0, to bits and labels."""

  model: boolean_baseline.ClsTransformer
  batch: Callable[[int], tuple[torch.Tensor, torch.Tensor]]
  test: tuple[torch.Tensor, torch.Tensor]


def own(trial: Trial, device: torch.device) -> Setup:
  """Returns such a trial, of PyTorch's own random numbers."""
  length, protocol = trial.task.length, trial.protocol
  hidden = torch.randperm(length)[: trial.task.sparsity].to(device)

  def sample(n):
    bits = torch.randint(0, 2, (n, length), device=device)
    return bits, bits[:, hidden].sum(dim=1) % 2

  model = boolean_baseline.ClsTransformer(length).to(device)
  return Setup(model, lambda _: sample(protocol.batch_size), sample(protocol.num_test))


def paired(trial: Trial, seeds: Seeds, device: torch.device) -> Setup:
  """Returns a trial of sepfx, to be trained in PyTorch."""

  def in_torch(sample):
    return tuple(torch.tensor(np.array(a, np.int64), device=device) for a in sample)

  params, world = trial.init(seeds).params, trial.world(seeds)
  model = boolean_baseline.ClsTransformer(trial.task.length).to(device)
  _load(model, params)
  test, draw = in_torch(world.test), jax.jit(trial.batch)
  with torch.inference_mode():
    logits = model.eval()(test[0]).cpu().numpy()
  with jax.default_matmul_precision("highest"):  # as PyTorch's, also on a GPU
    expected = predict(trial.model, params, world.test.bits)
  np.testing.assert_allclose(logits, expected, atol=1e-6)  # one model, or no pair
  return Setup(model, lambda step: in_torch(draw(world, step)), test)


def _load(model: boolean_baseline.ClsTransformer, params: Any) -> None:
  """Gives a model the weights of a `sepfx.models.ClsTransformer` of one layer."""
  block, embedding = params["blocks_0"], params["embedding"]
  width = boolean_baseline.WIDTH
  weights = {
    "position": embedding["position"],
    "token.weight": embedding["token"],
    "attention_norm.weight": block["attention_scale"],
    "attention_norm.bias": block["attention_bias"],
    "key.bias": np.zeros(width),  # which no output depends on
    "read_out.weight": params["read_out"]["kernel"].T,
  }
  for name in ("query", "key", "value"):
    weights[f"{name}.weight"] = block[f"{name}_kernel"].reshape(width, width).T
  for name in ("query", "value"):
    weights[f"{name}.bias"] = block[f"{name}_bias"].reshape(width)
  for theirs, ours in (("out", "out"), ("mlp.0", "mlp_in"), ("mlp.2", "mlp_out")):
    kernel, bias = block[ours]["kernel"], block[ours]["bias"]
    weights[f"{theirs}.weight"] = kernel.reshape(-1, kernel.shape[-1]).T
    weights[f"{theirs}.bias"] = bias
  for name, norm in (("mlp_norm", block["mlp_norm"]), ("last_norm", params["last_norm"])):
    weights[f"{name}.weight"], weights[f"{name}.bias"] = norm["scale"], norm["bias"]
  model.load_state_dict({n: torch.tensor(np.array(a)) for n, a in weights.items()})


def steps_to_learn(setup: Setup, protocol: Online) -> int | None:
  """Returns the step at which held-out error first passes the threshold, if it does."""
  model, (test_bits, test_labels) = setup.model, setup.test
  settings, (threshold,) = protocol.optimizer, protocol.thresholds
  optimizer = boolean_baseline.adam_with_kernel_decay(
    model, settings.learning_rate, settings.weight_decay
  )
  for step in range(1, FLAGS.max_steps + 1):
    model.train()
    bits, labels = setup.batch(step - 1)
    boolean_baseline.train_step(model, optimizer, bits, labels, settings.clip_norm)
    if step % protocol.check_every == 0:
      model.eval()
      with torch.inference_mode():
        wrong = model(test_bits).argmax(dim=1) != test_labels
      if wrong.float().mean() < threshold:
        return step
  return None


def main(_: list[str]) -> None:
  console = rich.console.Console(highlight=False)
  torch.manual_seed(FLAGS.seed)
  device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
  grid = cells(
    parity.STUDY,
    contexts=FLAGS.contexts,
    max_steps=FLAGS.max_steps,
    clip_norm=FLAGS.clip_norm,
  )
  for cell in grid:
    trial, length = cell.trial, cell.trial.task.length
    keys = cell.seeds(FLAGS.seed, FLAGS.num_trials)
    learned = []
    for k in range(FLAGS.num_trials):
      setup = (
        paired(trial, Seeds(*(own_keys[k] for own_keys in keys)), device)
        if FLAGS.paired
        else own(trial, device)
      )
      step = steps_to_learn(setup, trial.protocol)
      learned += [step] if step else []
      outcome = f"after {step} steps" if step else f"not in {FLAGS.max_steps}"
      console.print(f"T = {length}, trial {k}: {outcome}")
    share = f"{len(learned)}/{FLAGS.num_trials} learned"
    console.print(f"T = {length}: {share}, after {sorted(learned)}")


if __name__ == "__main__":
  app.run(main)

"""When does the published Transformer learn a parity in eager PyTorch?

    pip install -e '.[bench]'
    python -m benchmarks.parity

The same trials as those of `experiments.parity`, other random numbers: whether steps to
learn are spread alike tells a slow task from a wrong model.
"""

from __future__ import annotations

import rich.console
import torch
from absl import app, flags

from benchmarks import boolean_baseline

flags.DEFINE_list("contexts", ["10"], "T.")
flags.DEFINE_integer("num_trials", 10, "Trials at each T.")
flags.DEFINE_integer("max_steps", 2000, "Steps after which a trial is censored.")
flags.DEFINE_float("clip_norm", 1.0, "Of the global gradient norm; 0 for no clipping.")
flags.DEFINE_integer("seed", 0, "Seed of PyTorch's generator.")

FLAGS = flags.FLAGS
_SPARSITY, _BATCH, _NUM_TEST, _CHECK_EVERY, _LEVEL = 3, 2048, 2000, 10, 0.99


def steps_to_learn(length: int, device: torch.device) -> int | None:
  """Returns the step at which held-out accuracy first passes the level, if it does."""
  hidden = torch.randperm(length)[:_SPARSITY].to(device)

  def sample(n):
    bits = torch.randint(0, 2, (n, length), device=device)
    return bits, bits[:, hidden].sum(dim=1) % 2

  model = boolean_baseline.ClsTransformer(length).to(device)
  optimizer = boolean_baseline.adam_with_kernel_decay(model)
  test_bits, test_labels = sample(_NUM_TEST)
  for step in range(1, FLAGS.max_steps + 1):
    boolean_baseline.train_step(model, optimizer, *sample(_BATCH), FLAGS.clip_norm)
    if step % _CHECK_EVERY == 0:
      model.eval()
      with torch.inference_mode():
        right = model(test_bits).argmax(dim=1) == test_labels
      model.train()
      if right.float().mean() > _LEVEL:
        return step
  return None


def main(_: list[str]) -> None:
  console = rich.console.Console(highlight=False)
  torch.manual_seed(FLAGS.seed)
  device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
  for length in map(int, FLAGS.contexts):
    steps = [steps_to_learn(length, device) for _ in range(FLAGS.num_trials)]
    learned = sorted(step for step in steps if step is not None)
    console.print(f"T = {length}: {len(learned)}/{len(steps)} learned, after {learned}")


if __name__ == "__main__":
  app.run(main)

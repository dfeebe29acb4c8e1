"""The published program of Figure 1, as one would write it in eager PyTorch today.

One trial after another: a fresh batch every step, and after every `check_every` steps
the test loss on all test prompts.

    python -m benchmarks.baseline --model=transformer --length=12 --trials=3

trains whole trials, as the published program does, and prints how many steps each took.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import nn

TOKEN_DIM = 10
BATCH_SIZE = 64
NUM_TEST = 5000
CHECK_EVERY, THRESHOLD = 10, 0.7


class Prompts:
  """q-sparse token regression with q = 1 and a linear link, on one device."""

  def __init__(self, length: int, device: torch.device):
    self.length, self.device = length, device
    code_dim = math.floor(5 * math.log(length))
    signs = torch.randint(0, 2, (length, code_dim), device=device) * 2 - 1
    self.codes = signs / math.sqrt(code_dim)
    u = torch.randn(TOKEN_DIM, device=device)
    self.u = u / u.norm()
    self.input_dim = TOKEN_DIM + 2 * code_dim

  def sample(self, n: int, *, simple: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns inputs [n N D] and labels [n N]; `simple`: all positions name one token."""
    tokens = torch.randn(n, self.length, TOKEN_DIM, device=self.device)
    named = torch.randint(0, self.length, (n, 1 if simple else self.length),
                          device=self.device).expand(n, self.length)  # fmt: skip
    codes = self.codes.expand(n, -1, -1)
    labels = (tokens @ self.u).gather(1, named)
    return torch.cat([tokens, codes, self.codes[named]], dim=-1), labels


class Transformer(nn.Module):
  def __init__(self, prompts: Prompts):
    super().__init__()
    width = prompts.input_dim
    self.attention = nn.MultiheadAttention(width, 1, batch_first=True)
    self.read_out = nn.Sequential(nn.Linear(width, 100), nn.ReLU(), nn.Linear(100, 1))

  def forward(self, inputs: torch.Tensor) -> torch.Tensor:
    attended, _ = self.attention(inputs, inputs, inputs, need_weights=False)
    return self.read_out(attended).squeeze(-1)


class FeedForward(nn.Module):
  def __init__(self, prompts: Prompts):
    super().__init__()
    n, d = prompts.length, TOKEN_DIM
    self.layers = nn.Sequential(
      nn.Flatten(),
      nn.Linear(n * prompts.input_dim, n * d),
      nn.ReLU(),
      nn.Linear(n * d, 1000),
      nn.ReLU(),
      nn.Linear(1000, n),
    )

  def forward(self, inputs: torch.Tensor) -> torch.Tensor:
    return self.layers(inputs)


class GRU(nn.Module):
  def __init__(self, prompts: Prompts):
    super().__init__()
    self.layer = nn.GRU(prompts.input_dim, 500, batch_first=True, bidirectional=True)
    self.read_out = nn.Linear(1000, 1)

  def forward(self, inputs: torch.Tensor) -> torch.Tensor:
    return self.read_out(self.layer(inputs)[0]).squeeze(-1)


MODELS = {"transformer": Transformer, "ffn": FeedForward, "gru": GRU}


class Trial:
  """One trial in progress.

  Attributes:
    loss: the test loss at the last check.
  """

  def __init__(self, model: str, length: int, device: torch.device):
    self.prompts = Prompts(length, device)
    self.model = MODELS[model](self.prompts).to(device)
    self.optimizer = torch.optim.AdamW(
      self.model.parameters(), lr=1e-3, weight_decay=0.01
    )
    self.test = self.prompts.sample(NUM_TEST, simple=True)
    self.loss = math.inf

  def advance(self, check_every: int) -> None:
    """Trains to the next check and evaluates."""
    self.model.train()
    for _ in range(check_every):
      inputs, labels = self.prompts.sample(BATCH_SIZE)
      self.optimizer.zero_grad(set_to_none=True)
      nn.functional.mse_loss(self.model(inputs), labels).backward()
      self.optimizer.step()
    self.model.eval()
    with torch.inference_mode():
      inputs, labels = self.test
      self.loss = nn.functional.mse_loss(self.model(inputs), labels).item()


def default_device() -> torch.device:
  return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def seconds_per_step(model: str, length: int, seconds: float) -> float:
  """Returns the time of an optimizer step with its share of the evaluations.

  Args:
    model: which.
    length: N.
    seconds: that are measured, and at least three checks.
  """
  trial = Trial(model, length, default_device())
  trial.advance(CHECK_EVERY)  # PyTorch's own first-call costs
  start, checks = time.perf_counter(), 0
  while time.perf_counter() - start < seconds or checks < 3:
    trial.advance(CHECK_EVERY)
    checks += 1
  return (time.perf_counter() - start) / (checks * CHECK_EVERY)


def allow_tf32(allowed: bool) -> None:
  """Sets in what NVIDIA's GPUs multiply, in products and in cuDNN's kernels alike.

  By default PyTorch's products are in float32, and cuDNN's (the GRU's) in TF32.
  """
  torch.backends.cuda.matmul.allow_tf32 = allowed
  torch.backends.cudnn.allow_tf32 = allowed


def described() -> str:
  """Which PyTorch, where, and what of TF32 it is allowed."""
  of_products = torch.backends.cuda.matmul.allow_tf32
  of_cudnn = torch.backends.cudnn.allow_tf32
  return (
    f"{torch.__version__} on {default_device()}, allow_tf32: products {of_products}, "
    f"cuDNN {of_cudnn}"
  )


def main() -> None:
  parser = argparse.ArgumentParser()
  parser.add_argument("--model", choices=MODELS, required=True)
  parser.add_argument("--length", type=int, required=True)
  parser.add_argument("--trials", type=int, required=True)
  asked = parser.parse_args()
  device = default_device()
  for _ in range(asked.trials):
    trial, steps = Trial(asked.model, asked.length, device), 0
    while trial.loss >= THRESHOLD:
      trial.advance(CHECK_EVERY)
      steps += CHECK_EVERY
    print(steps, flush=True)


if __name__ == "__main__":
  main()

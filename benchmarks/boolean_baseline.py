"""The published Boolean trials, as one would write them in eager PyTorch today.

A one-layer pre-layer-norm Transformer read at its [CLS] token, of which alone the
query, the MLP and the read-out are computed. Only `benchmarks.boolean_speed` and
`benchmarks.parity` use it.
"""

from __future__ import annotations

import torch
from torch import nn

WIDTH, HEADS, DROPOUT, SCALE = 64, 16, 0.1, 0.02
NUM_TEST = 10_000
# Inputs evaluated at once: all of them together would take gigabytes at T = 400.
CHUNK = 1000


class ClsTransformer(nn.Module):
  def __init__(self, length: int):
    super().__init__()
    self.token = nn.Embedding(3, WIDTH)
    self.position = nn.Parameter(SCALE * torch.randn(length + 1, WIDTH))
    self.attention_norm, self.mlp_norm, self.last_norm = (
      nn.LayerNorm(WIDTH) for _ in range(3)
    )
    self.query, self.key, self.value, self.out = (
      nn.Linear(WIDTH, WIDTH) for _ in range(4)
    )
    self.mlp = nn.Sequential(
      nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
    )
    self.read_out = nn.Linear(WIDTH, 2, bias=False)
    self.drop = nn.Dropout(DROPOUT)
    for module in self.modules():
      if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=SCALE)
        if getattr(module, "bias", None) is not None:
          nn.init.zeros_(module.bias)

  def forward(self, bits: torch.Tensor) -> torch.Tensor:
    n = len(bits)
    cls = torch.full((n, 1), 2, device=bits.device)
    tokens = self.drop(self.token(torch.cat([bits, cls], dim=1)) + self.position)
    row, normed = tokens[:, -1:], self.attention_norm(tokens)

    def by_head(array):
      return array.view(n, -1, HEADS, WIDTH // HEADS).transpose(1, 2)

    heads = nn.functional.scaled_dot_product_attention(
      by_head(self.query(normed[:, -1:])),
      by_head(self.key(normed)),
      by_head(self.value(normed)),
      dropout_p=DROPOUT if self.training else 0.0,
    )
    row = row + self.drop(self.out(heads.transpose(1, 2).reshape(n, 1, WIDTH)))
    row = row + self.drop(self.mlp(self.mlp_norm(row)))
    return self.read_out(self.last_norm(row))[:, 0]


def adam_with_kernel_decay(
  model: nn.Module, learning_rate: float = 1e-3, weight_decay: float = 1e-4
) -> torch.optim.Optimizer:
  """Adam, with decoupled decay on linear weight matrices alone."""
  kernels, others = [], []
  for module in model.modules():
    for name, parameter in module.named_parameters(recurse=False):
      decayed = isinstance(module, nn.Linear) and name == "weight"
      (kernels if decayed else others).append(parameter)
  groups = [
    {"params": kernels, "weight_decay": weight_decay},
    {"params": others, "weight_decay": 0.0},
  ]
  return torch.optim.AdamW(groups, lr=learning_rate)


def train_step(
  model: nn.Module,
  optimizer: torch.optim.Optimizer,
  bits: torch.Tensor,
  labels: torch.Tensor,
  clip_norm: float,
) -> None:
  """One step on the batch's mean cross-entropy; `clip_norm` 0 does not clip."""
  optimizer.zero_grad(set_to_none=True)
  nn.functional.cross_entropy(model(bits), labels).backward()
  if clip_norm:
    nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
  optimizer.step()


class Trial:
  """One trial in progress.

  Attributes:
    accuracy: on the held-out inputs at the last check.
  """

  def __init__(self, length: int, num_samples: int, device: torch.device):
    self.model = ClsTransformer(length).to(device)
    self.optimizer = adam_with_kernel_decay(self.model)
    hidden = torch.randperm(length)[:3]
    self.train, self.test = (self._sample(n, length, hidden, device)
                             for n in (num_samples, NUM_TEST))  # fmt: skip
    self.accuracy = 0.0

  @staticmethod
  def _sample(n, length, hidden, device):
    bits = torch.randint(0, 2, (n, length), device=device)
    return bits, bits[:, hidden.to(device)].all(dim=1).long()

  def advance(self, check_every: int) -> None:
    """Trains to the next check and evaluates."""
    self.model.train()
    bits, labels = self.train
    for _ in range(check_every):
      train_step(self.model, self.optimizer, bits, labels, clip_norm=1.0)
    self.evaluate()

  def evaluate(self) -> None:
    """Measures the accuracy on the held-out inputs."""
    self.model.eval()
    with torch.inference_mode():
      parts = zip(*(part.split(CHUNK) for part in self.test), strict=True)
      correct = sum(
        (self.model(bits).argmax(dim=1) == labels).sum().item() for bits, labels in parts
      )
    self.accuracy = correct / NUM_TEST

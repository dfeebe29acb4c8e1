"""The Transformer for Fourier-sparse functions, as one would write it in eager PyTorch.

Plain modules, token by token; in the last layer the query, the MLP and the read-out are
computed at the read-out row alone. Only `benchmarks.fourier_speed` uses it.
"""

from __future__ import annotations

import math

import torch
from torch import nn

EMBEDDING, HIDDEN = 30, 128


class Block(nn.Module):
  def __init__(self, width: int):
    super().__init__()
    self.query, self.key, self.value, self.out = (
      nn.Linear(width, width, bias=False) for _ in range(4)
    )
    self.mlp = nn.Sequential(
      nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, width)
    )

  def forward(self, tokens: torch.Tensor, num_rows: int, scale: float) -> torch.Tensor:
    rows = tokens[:, -num_rows:]
    scores = scale * self.query(rows) @ self.key(tokens).transpose(1, 2)
    rows = rows + self.out(torch.softmax(scores, dim=-1) @ self.value(tokens))
    return rows + self.mlp(rows)


class ReadOutTransformer(nn.Module):
  def __init__(self, length: int):
    super().__init__()
    width = length + 1 + EMBEDDING
    self.embedding = nn.Embedding(2, EMBEDDING)
    nn.init.normal_(self.embedding.weight, std=0.02)
    self.register_buffer("positions", torch.eye(length + 1))
    self.blocks = nn.ModuleList([Block(width), Block(width)])
    self.read_out = nn.Linear(width, 1)
    self.scale = math.log(length)

  def forward(self, bits: torch.Tensor) -> torch.Tensor:
    n = len(bits)
    own = self.embedding(torch.cat([bits, bits.new_zeros(n, 1)], dim=1))
    tokens = torch.cat([self.positions.expand(n, -1, -1), own], dim=-1)
    first, last = self.blocks
    tokens = first(tokens, tokens.shape[1], self.scale)
    return self.read_out(last(tokens, 1, self.scale)[:, 0])[:, 0]


class Trial:
  """One trial in progress on a fixed sample of a random function."""

  def __init__(self, length: int, num_samples: int, degree: int, num_components: int):
    self.model = ReadOutTransformer(length)
    self.optimizer = torch.optim.AdamW(
      self.model.parameters(), lr=1e-3, weight_decay=1e-4
    )
    self.bits = torch.randint(0, 2, (num_samples, length))
    sets = [torch.randperm(length)[:degree] for _ in range(num_components)]
    chi = torch.stack([(1 - 2 * self.bits[:, own]).prod(dim=1) for own in sets], dim=1)
    own = torch.randn(num_components).abs()
    self.labels = chi.float() @ (own / own.norm())

  def train(self, num_steps: int, batch_size: int) -> None:
    """Takes steps on random batches of the sample."""
    for _ in range(num_steps):
      chosen = torch.randint(len(self.bits), (batch_size,))
      self.optimizer.zero_grad(set_to_none=True)
      outputs = self.model(self.bits[chosen])
      nn.functional.mse_loss(outputs, self.labels[chosen]).backward()
      self.optimizer.step()

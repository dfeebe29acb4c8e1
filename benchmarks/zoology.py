"""Zoology's published program and this one on one sample of MQAR: accuracies by epoch.

    pip install -e '.[bench]' einops opt_einsum pandas pydantic torchvision tqdm wandb
    python -m benchmarks.zoology --path=PATH --model=attention --learning_rate=2e-3
    python -m benchmarks.zoology --model=attention --learning_rate=2e-3

PATH is a copy of HazyResearch/zoology at d88d6f5, a later state of what made Figure 2 of
Arora et al. (2024). This is a part of it, with two layers for all mixers as there. The
code of January 2024 (66f4918) has four for all but attention. (N, pairs) = (64, 4), a
vocabulary of 8,192, width 64, 100,000 training and 3,000 test sequences, batches of 512,
AdamW with a weight decay of 0.1 and a cosine to 0. An accuracy above 0.99 on the test
sequences ends a run, as by default there. Without a path it trains this package's model
of that name on the same sequences.

The published models and their trainer are used as they are but for three things. Arrays
are on the CPU. Each epoch has its batches in a new order, as in the paper's code: at
d88d6f5 all have one. The loss is that of logits at the asked positions: at d88d6f5 the
trainer takes the output of the last norm for logits.

What differs: there each block has a second layer norm, with weights of its own, whose
output is added to the residual stream where an MLP's would be, attention and embeddings
have dropout of a tenth (--dropout=0 takes it out), the cosine goes down once per epoch
and not at each step, an epoch's last batch is a smaller one where here it is left out,
and the last layer of attention starts with weights smaller by 1/2 in place of 1/sqrt(2),
that of Based not smaller at all. Batches come in another order.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags

from sepfx.ensembles import Cell, run
from sepfx.models.mixers import Backbone
from sepfx.tasks.tokens import MQAR
from sepfx.training import ERM, AdamW

flags.DEFINE_string("path", "", "A copy of the published program; none for this one.")
flags.DEFINE_enum("model", "attention", ["attention", "base_conv", "based"], "Which.")
flags.DEFINE_float("learning_rate", 1e-3, "AdamW's, at the beginning.")
flags.DEFINE_float("dropout", 0.1, "Of attention and embeddings; with --path alone.")
flags.DEFINE_integer("epochs", 64, "Passes over the sample; of the cosine, too.")
flags.DEFINE_integer("num_examples", 100_000, "Training sequences.")
flags.DEFINE_integer("seed", 0, "Of all that is random.")

FLAGS = flags.FLAGS

LENGTH, WIDTH, LAYERS, BATCH, NUM_TEST, ENOUGH = 64, 64, 2, 512, 3_000, 0.99
MIXERS = {
  "attention": "attention",
  "base_conv": f"base_convolution:size=3+base_convolution:length={LENGTH}",
  "based": "base_convolution:size=3+based:feature_dim=8",
}


class Data(NamedTuple):
  """Sequences, and what stands where answers are asked for; -100 elsewhere."""

  tokens: np.ndarray
  labels: np.ndarray


def cell() -> Cell:
  """This package's model on one sample, with an evaluation after each epoch."""
  task, per_epoch = MQAR(), FLAGS.num_examples // BATCH
  steps = FLAGS.epochs * per_epoch
  model = Backbone(
    MIXERS[FLAGS.model],
    num_layers=LAYERS,
    width=WIDTH,
    vocabulary=task.vocabulary,
    positions="learned" if FLAGS.model == "attention" else "none",
    mlp_width=0,
    tied=True,
    scheme="gpt2",
  )
  protocol = ERM(
    sample_size=FLAGS.num_examples,
    threshold=1 - ENOUGH,
    optimizer=AdamW(FLAGS.learning_rate, weight_decay=0.1, decay_steps=steps),
    batch_size=BATCH,
    check_every=per_epoch,
    num_test=NUM_TEST,
    max_steps=steps,
  )
  return Cell(protocol.trial(task, task, model, FLAGS.model))


def ours() -> list[float]:
  """Accuracies of this package's model after each epoch."""
  (result,) = run([cell()], seed=FLAGS.seed, num_trials=1)
  return (1 - result.curve["test_error"]).tolist()


def sample() -> tuple[Data, Data]:
  """The training and test sequences of that trial."""
  own = cell()
  seeds = jax.tree.map(lambda keys: keys[0], own.seeds(FLAGS.seed, 1))
  world = own.trial.world(seeds)
  return _data(world.sample), _data(world.test)


def _data(own: Any) -> Data:
  tokens, asked, answers = map(np.asarray, own)
  labels = np.full(tokens.shape, -100)
  np.put_along_axis(labels, asked, answers, axis=1)
  return Data(tokens.astype(np.int64), labels)


class Printed:
  """Stands for the published logger, and keeps accuracies."""

  def __init__(self) -> None:
    self.accuracies: list[float] = []

  def log(self, values: dict[str, Any]) -> None:
    if "valid/accuracy" in values:
      self.accuracies.append(values["valid/accuracy"])
      print(values, flush=True)


def theirs(path: str) -> list[float]:
  """Accuracies of the published model after each epoch."""
  sys.path.insert(0, path)
  import torch
  from zoology import config, model, train  # type: ignore[import-not-found]

  torch.manual_seed(FLAGS.seed)
  # The place of embeddings is a default there.
  model.TokenEmbeddings.__init__.__defaults__ = tuple(
    "cpu" if own == "cuda" else own for own in model.TokenEmbeddings.__init__.__defaults__
  )
  mixers = {
    "attention": ("attention.MHA", {"dropout": FLAGS.dropout, "num_heads": 1}),
    "base_conv": ("base_conv.BaseConv", {"l_max": LENGTH, "kernel_size": [3, -1]}),
    "based": ("hybrid.Hybrid", {"configs": [
      {"name": "zoology.mixers.base_conv.BaseConv", "kwargs": {
        "l_max": LENGTH, "kernel_size": 3, "implicit_long_conv": True}},
      {"name": "zoology.mixers.based.Based", "kwargs": {
        "l_max": LENGTH, "feature_dim": 8, "num_key_value_heads": 1, "num_heads": 1,
        "feature_name": "taylor_exp", "train_view": "quadratic"}},
    ]}),
  }  # fmt: skip
  name, kwargs = mixers[FLAGS.model]
  made = model.LanguageModel(
    config.ModelConfig(
      d_model=WIDTH,
      n_layers=LAYERS,
      block_type="TransformerBlock",
      max_position_embeddings=LENGTH if FLAGS.model == "attention" else 0,
      vocab_size=MQAR().vocabulary,
      embed_dropout=FLAGS.dropout,
      sequence_mixer={"name": f"zoology.mixers.{name}", "kwargs": kwargs},
      state_mixer={"name": "torch.nn.Identity", "kwargs": {}},
    )
  )

  def loss(self, inputs, targets):
    asked = targets != -100
    logits = self.model(inputs, return_embeddings=True)[asked] @ made.lm_head.weight.T
    answers = torch.full_like(targets, -1)
    answers[asked] = logits.argmax(dim=-1)
    return torch.nn.functional.cross_entropy(logits, targets[asked]), answers

  train.Trainer.compute_loss = loss
  generator = np.random.default_rng(FLAGS.seed)
  logger = Printed()
  training, test = sample()
  trainer = train.Trainer(
    model=made,
    train_dataloader=_Batches(training, generator),
    test_dataloader=_Batches(test, None),
    max_epochs=FLAGS.epochs,
    learning_rate=FLAGS.learning_rate,
    weight_decay=0.1,
    early_stopping_metric="valid/accuracy",
    early_stopping_threshold=ENOUGH,
    device="cpu",
    logger=logger,
  )
  trainer.fit()
  return logger.accuracies


class _Batches:
  """Batches of sequences, in a new order in each epoch if there is a generator."""

  def __init__(self, data: Data, generator: np.random.Generator | None):
    self._data, self._generator = data, generator

  def __len__(self) -> int:
    return -(-len(self._data.tokens) // BATCH)

  def __iter__(self):
    import torch

    order = np.arange(len(self._data.tokens))
    if self._generator is not None:
      self._generator.shuffle(order)
    for start in range(0, len(order), BATCH):
      own = order[start : start + BATCH]
      tokens, labels = (torch.from_numpy(array[own]) for array in self._data)
      yield tokens, labels, [{}] * len(own)


def main(argv: list[str]) -> None:
  del argv
  start = time.perf_counter()
  accuracies = theirs(FLAGS.path) if FLAGS.path else ours()
  found = {
    "program": "zoology" if FLAGS.path else "sepfx",
    "model": FLAGS.model,
    "learning_rate": FLAGS.learning_rate,
    "dropout": FLAGS.dropout if FLAGS.path else 0.0,
    "epochs": FLAGS.epochs,
    "seed": FLAGS.seed,
    "seconds": round(time.perf_counter() - start, 1),
    "accuracies": [round(own, 4) for own in accuracies],
  }
  print(json.dumps(found))


if __name__ == "__main__":
  app.run(main)

"""Figure 2's program, in small."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import sepfx
from sepfx.analysis import block_statistics
from sepfx.models import query_key_products

ROOT = pathlib.Path(__file__).parent.parent


def run(*arguments):
  command = [sys.executable, "-m", "experiments.attention_weights", *arguments]
  return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.faults
def test_trains_until_the_loss_and_draws_both_matrices(tmp_path):
  settings = [
    "--length=3", "--token_dim=2", "--num_samples=100", "--batch_size=16",
    "--learning_rate=0.01", "--max_epochs=40", "--stop_loss=0.3",
    f"--output_dir={tmp_path / 'run'}",
  ]  # fmt: skip
  done = run(*settings)
  assert done.returncode == 0, done.stderr
  summary = json.loads((tmp_path / "run/summary.json").read_text())
  losses = summary["training_loss"]
  assert summary["stopped"]
  assert losses[-1] < 0.3 <= min(losses[:-1])
  records = sepfx.load(tmp_path / "run")
  (trained,) = records.models.values()
  code_dim = 5  # floor(5 ln 3)
  (learned,) = query_key_products(trained.params, 2 + 2 * code_dim)
  assert block_statistics(np.asarray(learned), 2, code_dim) == summary["learned"]
  (curve,) = records.curves()
  assert curve["train_loss"].tolist() == losses
  # The construction keeps to its block, and so do the statistics drawn from it.
  assert summary["constructed"]["share_in_block"] == 1.0
  assert summary["constructed"]["rows_won_by_diagonal"] == 1.0
  assert summary["constructed"]["mean_off_diagonal"] == 0.0
  assert (tmp_path / "run/figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_bad_flags_are_refused(tmp_path):
  refused = run("--length=1", f"--output_dir={tmp_path}")
  assert refused.returncode == 2
  assert (
    refused.stderr == "error: --length: got 1, takes an integer >= 2, at most 1048576\n"
  )

"""Figure 2's program, in small."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import sepfx
from experiments.qstr.query_key import block_statistics, draw_products
from sepfx.models import query_key_products

ROOT = pathlib.Path(__file__).parents[2]


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


def test_attention_figure_draws_both_matrices():
  learned, constructed = np.eye(8), 2 * np.eye(8)
  figure = draw_products(learned, constructed, 2, 3)
  images = [axis.images[0] for axis in figure.axes if axis.images]
  np.testing.assert_array_equal(images[0].get_array(), learned)
  np.testing.assert_array_equal(images[1].get_array(), constructed)

"""Runs that are drawn together, and those that are refused."""

import numpy as np
import pytest

from experiments import best_rate
from experiments.qstr.first_layer import study as first_layer
from sepfx.ensembles import Records
from sepfx.errors import InvalidSetting
from sepfx.studies import beside
from sepfx.studies.beside import Part


def test_rates_of_parts_share_their_checks():
  """Else one rate's trials were censored, or rounded, as another's are not."""
  parts = []
  for rates, other in (("1e-3", "--check_every=1"), ("1e-2", "--check_every=2")):
    arguments = ["--models=ffn", "--lengths=4", f"--learning_rates={rates}", other]
    chosen = best_rate.STUDY.chosen(arguments)
    own = best_rate.STUDY.cells(chosen)
    parts.append(Part(Records(np.empty(0), (), {}), own, chosen))
  message = r"beside: got 'there', takes runs with one budget, .* all of learning_rate at"
  with pytest.raises(InvalidSetting, match=message):
    beside.check(parts, ["there"], "length", ("learning_rate",))
  beside.check(parts, ["there"], "length")
  longer = best_rate.STUDY.chosen(["--models=ffn", "--lengths=8", "--check_every=2"])
  other = Part(Records(np.empty(0), (), {}), best_rate.STUDY.cells(longer), longer)
  beside.check([parts[0], other], ["there"], "length", ("learning_rate",))


def test_runs_that_a_summary_would_pool_are_not_taken_together():
  """It tells its axes apart, and nothing else."""
  own = ("--models=tokens_first", "--sample_sizes=5", "--length=4", "--token_dim=3")

  def parts(*arguments):
    found = []
    for further in ((), arguments):
      chosen = first_layer.STUDY.chosen([*own, *further])
      cells = first_layer.STUDY.cells(chosen)
      found.append(Part(Records(np.empty(0), (), {}), cells, chosen))
    return found

  axes = first_layer.STUDY.axes
  beside.check(parts("--sample_sizes=6"), ["there"], "length", axes=axes)
  beside.check(parts("--l2=0.1"), ["there"], "length", axes=axes)
  takes = "takes runs that differ in model and sample_size and l2 alone, not"
  with pytest.raises(InvalidSetting, match=takes):
    beside.check(parts("--learning_rate=0.1"), ["there"], "length", axes=axes)

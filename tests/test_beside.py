"""Runs that are drawn together, and those that are refused."""

import dataclasses

import numpy as np
import pytest

from experiments import best_rate
from experiments.qstr.first_layer import study as first_layer
from experiments.suite import study as mixers
from sepfx.ensembles import Records
from sepfx.errors import InvalidSetting
from sepfx.studies import beside
from sepfx.studies.beside import Part
from sepfx.tasks.tokens import MQAR


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


def parts_of(*calls):
  """Runs of mixers that have no trials."""
  found = []
  for arguments in calls:
    chosen = mixers.STUDY.chosen([*arguments, "--learning_rates=1e-3"])
    cells = mixers.STUDY.cells(chosen, shipped=True)  # not checked once more
    found.append(Part(Records(np.empty(0), (), {}), cells, chosen))
  return found


@pytest.mark.parametrize(
  "own",
  [
    ("--tasks=mqar", "--num_pairs=2,8", "--models=gru"),
    ("--tasks=mqar", "--num_pairs=8", "--models=gru,delta"),
    ("--tasks=mqar:num_pairs=8", "--models=gru,delta"),
    ("--tasks=mqar", "--task.num_pairs=8", "--models=gru,delta"),
  ],
)
def test_a_field_of_a_task_that_one_run_names_is_one_of_all(own):
  """Of the others it has the value that their tasks have."""
  published_call = ("--tasks=mqar", "--models=delta,gla")
  parts = parts_of(own, published_call)
  beside.check(parts, ["there"], "length")
  _, published = beside._columns(parts)
  (name,) = published
  assert (name.removeprefix("task."), published[name]) == ("num_pairs", 4)
  both = parts_of(("--tasks=mqar", "--num_pairs=4,8", "--models=delta"), published_call)
  with pytest.raises(InvalidSetting, match=r"beside: got 'there', .*twice"):
    beside.check(both, ["there"], "length")


def test_a_field_of_a_task_that_others_do_not_have_is_none_of_theirs():
  parts = parts_of(
    ("--tasks=mqar", "--num_pairs=2,8", "--models=gru"), ("--tasks=dyck", "--models=gru")
  )
  with pytest.raises(InvalidSetting, match=r"num_pairs .a further field that all have"):
    beside.check(parts, ["there"], "length")
  parts = parts_of(
    ("--tasks=mqar:num_pairs=2,dyck", "--models=gru"),
    ("--tasks=mqar", "--models=delta"),
  )
  beside.check(parts, ["there"], "length")
  assert beside._columns(parts) == [{}, {}]  # a column is of all tasks of a run


@dataclasses.dataclass(frozen=True)
class Listed(MQAR):
  """Has a list, and a field that is called as a setting of the study."""

  name = "listed"
  gaps: list = dataclasses.field(default_factory=list)
  width: int = 3


@pytest.mark.parametrize(
  ("own", "other"),
  [
    ("--tasks=mqar:vocabulary=128", "--tasks=dyck"),  # where it is no field
    ("--tasks=mqar:random_rest=false", "--tasks=mqar"),  # no number
    (f"--tasks={__name__}:Listed:gaps=3", f"--tasks={__name__}:Listed"),
    (f"--tasks={__name__}:Listed:width=4", f"--tasks={__name__}:Listed"),
  ],
)
def test_what_is_no_number_of_all_tasks_is_no_column(own, other):
  parts = parts_of((own, "--models=gru"), (other, "--models=delta"))
  beside.check(parts, ["there"], "length")
  assert beside._columns(parts) == [{}, {}]

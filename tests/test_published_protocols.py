"""The settings behind the published figures, written out here once more.

Presets take most of them from defaults. A default that moves must not move what a preset
says it reproduces.
"""

import pathlib

import pytest

from experiments.boolean import boolean_sample_complexity, parity
from experiments.qstr import attention_weights
from experiments.sample_complexity import STUDY
from sepfx.models import GRU, ClsTransformer, FeedForward, Transformer
from sepfx.tasks import FUNCTIONS, LINKS, QSTR, SparseBoolean, independent, shared
from sepfx.training import ERM, AdamW, Online

FLAGS = pathlib.Path(__file__).parent.parent / "experiments/flags"


def trials(study, *arguments):
  return [cell.trial for cell in study.cells(study.chosen(arguments))]


def published_online(threshold, check_every):
  adam = AdamW(
    learning_rate=1e-3,
    weight_decay=0.01,
    clip_norm=0.0,
    decay="all",
    warmup_steps=0,
    decay_steps=0,
    rho=None,
  )
  return Online(
    thresholds=(threshold,),
    optimizer=adam,
    batch_size=64,
    check_every=check_every,
    num_test=5000,
    max_samples=1_000_000,
    screen=True,
    l2=None,
    gradient_penalty=None,
    init_scale=None,
  )


def published_tokens(length, code_dim, indices):
  task = QSTR(
    length=length,
    token_dim=10,
    sparsity=1,
    indices=indices,
    link=LINKS["linear"],
    codes="rademacher",
    token_scales=None,
    encoding_prefactor=False,
    max_length=None,
  )
  assert task.resolved_code_dim == code_dim
  return task


@pytest.mark.parametrize(
  ("preset", "length", "code_dim", "indices", "protocol"),
  [
    ("fig1a", 12, 12, independent, published_online(0.7, 10)),
    ("fig1b", 25, 16, shared, published_online(0.02, 100)),
  ],
)
def test_figure_1_of_the_main_paper(preset, length, code_dim, indices, protocol):
  """Its task, its three models, its training; simple-1STR is tested on in both."""
  flagfile = f"--flagfile={FLAGS / f'{preset}.cfg'}"
  found = trials(STUDY, flagfile, f"--lengths={length}")
  assert [trial.model for trial in found] == [
    Transformer(
      num_heads=1, parametrization="separate", head_dim=None, width=100, scheme="torch"
    ),
    FeedForward(hidden_widths=(10 * length, 1000), scheme="torch", num_outputs=None),
    GRU(units=500, scheme="torch", num_outputs=None),
  ]
  for trial in found:
    assert trial.task == published_tokens(length, code_dim, indices)
    assert trial.test_task == published_tokens(length, code_dim, shared)
    assert trial.protocol == protocol
  chosen = STUDY.chosen([flagfile])
  lengths = {"fig1a": (2, 4, 6, 8, 10, 12), "fig1b": (25, 27, 29, 31, 33)}
  assert chosen.values["length"] == lengths[preset]
  assert chosen.one("num_trials") == 5


def test_the_library_trains_as_published_where_nothing_is_said():
  assert Online() == published_online(0.7, 10)
  assert QSTR(length=12) == published_tokens(12, 12, independent)


def test_figure_2_of_the_main_paper():
  """A fixed sample that is shuffled anew in each of 20 epochs."""
  (trial,) = trials(attention_weights.STUDY)
  assert trial.task == trial.test_task == published_tokens(100, 23, shared)
  assert trial.model == Transformer()
  protocol = trial.protocol
  assert (protocol.sample_size, protocol.batch_size) == (50_000, 64)
  assert protocol.optimizer == AdamW(1e-3, weight_decay=0.2)
  assert (protocol.watched, protocol.threshold) == ("train_loss", 0.05)
  assert protocol.num_checks == 20
  assert protocol.check_every == 50_000 // 64


def published_adam():
  """minGPT's: decay of linear layers' kernels alone, gradients clipped at a norm of 1."""
  return AdamW(1e-3, weight_decay=1e-4, clip_norm=1.0, decay="kernels")


def published_reader():
  return ClsTransformer(num_layers=1, num_heads=16, width=64, dropout=0.1, num_classes=2)


def test_hidden_ands_of_the_second_paper():
  """Figures 2 and 4: full-batch steps on m of T bits, 10,000 held out."""
  study = boolean_sample_complexity.STUDY
  flagfile = f"--flagfile={FLAGS / 'boolean_fig4.cfg'}"
  (trial,) = trials(study, flagfile, "--contexts=100", "--sample_sizes=50")
  assert trial.task == SparseBoolean(
    length=100,
    sparsity=3,
    function=FUNCTIONS["and"],
    noise=0.0,
    bit_probability=0.5,
    subset=None,
  )
  assert trial.model == published_reader()
  assert trial.protocol == ERM(
    sample_size=50,
    threshold=1 - 0.99,
    optimizer=published_adam(),
    batch_size=None,
    check_every=10,
    num_test=10_000,
    max_steps=1000,
    run_to_end=False,
    watched="test_error",
    l2=None,
    gradient_penalty=None,
    init_scale=None,
  )
  chosen = study.chosen([flagfile])
  lengths = (100, 150, 200, 250, 300, 350, 400, 500, 600, 700, 800)
  assert chosen.values["length"] == lengths
  assert chosen.values["sample_size"] == tuple(range(50, 201, 10))
  assert chosen.one("num_trials") == 50


def test_parities_of_the_second_paper():
  """Figure 3: fresh batches of 2,048."""
  found = trials(parity.STUDY)
  assert [trial.task.length for trial in found] == [10, 15, 20]
  for trial in found:
    assert (trial.task.name, trial.task.sparsity) == ("parity", 3)
    assert trial.model == published_reader()
    assert trial.protocol.batch_size == 2048
    assert trial.protocol.num_checks * trial.protocol.check_every == 10_000
    assert trial.protocol.optimizer == published_adam()

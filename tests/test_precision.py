"""In which numbers trials are computed, and which types models and samplers have."""

import dataclasses
import functools
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sepfx
from experiments.fourier.flat_transformer import FlatTransformer
from sepfx import models, precision, tasks
from sepfx.ensembles import Cell, rehearse, run
from sepfx.ensembles.lanes import leaves_of
from sepfx.models import NAMES, ClsAttention, FeedForward, InputMap, OnBits
from sepfx.tasks import QSTR, FourierSparse, ParityChain, SparseBoolean
from sepfx.training import ERM, AdamW, Online, Seeds
from sepfx.training.orders import place_in_order
from tests import programs, small

ONLINE = Online(
  thresholds=(0.7,), batch_size=8, check_every=2, num_test=50, max_samples=160
)
FIXED = ERM(
  sample_size=20, batch_size=7, check_every=2, num_test=30, max_steps=6, threshold=0.1
)


@pytest.fixture
def in_64_bits():
  """As in the project of somebody whose own computations are in 64 bits."""
  jax.config.update("jax_enable_x64", True)
  yield
  assert jax.config.jax_enable_x64
  jax.config.update("jax_enable_x64", False)


def elsewhere(function):
  """What a function returns in a thread of its own."""
  found = []
  thread = threading.Thread(target=lambda: found.append(function()))
  thread.start()
  thread.join()
  return found[0]


def settings():
  of_jax = jax.config
  values = of_jax.jax_default_matmul_precision, of_jax.jax_debug_nans
  return (jnp.ones(1).dtype.name, *values)


@pytest.mark.usefixtures("in_64_bits")
def test_threads_have_the_settings_of_who_starts_them():
  with precision.single(), jax.default_matmul_precision("highest"), jax.debug_nans(True):
    carried = precision.carried(settings)
    assert settings() == ("float32", "highest", True)
  assert settings() == elsewhere(settings) == ("float64", None, False)
  assert elsewhere(carried) == carried() == ("float32", "highest", True)


@pytest.mark.usefixtures("in_64_bits")
def test_a_generator_leaves_its_reader_in_64_bits():
  closed = []

  @precision.steps_in_single
  def generate():
    try:
      for _ in range(3):
        yield settings()[0]
    finally:
      closed.append(settings()[0])

  items = generate()
  assert (next(items), settings()[0]) == ("float32", "float64")
  items.close()
  assert (closed, settings()[0]) == (["float32"], "float64")
  assert list(generate()) == ["float32"] * 3


def cell(rate=1e-3):
  task, protocol = QSTR(3, 2), dataclasses.replace(ONLINE, optimizer=AdamW(rate))
  return Cell(protocol.trial(task, task, small.Linear(), "own"), {"learning_rate": rate})


RUN = {"seed": 0, "num_trials": 2}


def curves():
  return {found.name: found.curve.tobytes() for found in run([cell()], **RUN)}


def test_trials_are_the_same_bits_in_64_bits_and_where_nans_are_looked_for(request):
  plain = curves()
  request.getfixturevalue("in_64_bits")
  with jax.debug_nans(True):
    assert curves() == plain


def test_an_error_says_which_trials_came_to_nan():
  with (
    jax.debug_nans(True),
    pytest.raises(FloatingPointError, match="debug_nans") as error,
  ):
    list(run([cell(), cell(1e30)], **RUN))
  assert f"{cell(1e30).name}/trial=0 at step " in str(error.value)
  assert cell().name not in str(error.value)


@pytest.mark.slow
@pytest.mark.usefixtures("in_64_bits")
@pytest.mark.parametrize("generate", [run, rehearse])
def test_who_reads_of_the_engine_does_so_in_64_bits(generate):
  for _ in generate([cell()], **RUN):
    assert settings()[0] == "float64"


def measured(task, model, protocol):
  own = sepfx.measure(
    task, model, task.length, protocol,
    num_trials=2, probes=["norms"], keep_weights=True, progress=False,
  )  # fmt: skip
  weights = [model.params for model in own.models.values()]
  return own.table, own.probes, list(own.all_curves.values()), weights


@pytest.mark.slow
@pytest.mark.parametrize(
  "arguments",
  [
    (QSTR(length=3, token_dim=2), small.Linear(name="own"), ONLINE),
    (SparseBoolean(6, 2), "ffn:hidden_widths=5", FIXED),
  ],
  ids=["online", "fixed"],
)
def test_a_call_gives_the_same_bits_in_64_bits(arguments, request):
  plain = measured(*arguments)
  request.getfixturevalue("in_64_bits")
  for one, other in zip(
    *map(jax.tree.leaves, (plain, measured(*arguments))), strict=True
  ):
    assert one.dtype == other.dtype
    assert one.tobytes() == other.tobytes()
  assert jax.config.jax_enable_x64


@pytest.mark.usefixtures("in_64_bits")
def test_a_leaf_of_64_bits_is_one_of_32():
  task = SparseBoolean(6, 2, noise=jnp.asarray(0.25))
  assert [leaf.dtype for leaf in leaves_of(task)] == [np.float64]
  with precision.single():
    (noise,) = leaves_of(task)
  assert (noise.dtype, noise) == (np.float32, 0.25)


@pytest.mark.slow
def test_a_study_is_the_same_bits_in_64_bits(tmp_path, monkeypatch):
  flags = ("--models=ffn:hidden_widths=20", "--lengths=3", "--num_trials=2",
           "--max_samples=800", "--thresholds=0.7", "--probes=norms")  # fmt: skip
  programs.complete(tmp_path / "plain", *flags, cache=tmp_path / "cache")
  monkeypatch.setenv("JAX_ENABLE_X64", "1")
  programs.complete(tmp_path / "wide", "--dry_run", *flags, cache=tmp_path / "cache")
  programs.complete(tmp_path / "wide", *flags, cache=tmp_path / "cache")
  for name in ("trials.csv", "curves.npz", "probes.csv"):
    own = (tmp_path / "wide" / name).read_bytes()
    assert own == (tmp_path / "plain" / name).read_bytes(), name


TASKS = {
  **{f"link {link}": QSTR(4, 3, 2, link=link) for link in tasks.LINKS},
  **{f"codes {kind}": QSTR(3, 2, codes=kind, code_dim=18) for kind in tasks.codes.KINDS},
  "shared": QSTR(4, 2, 2, indices=tasks.shared, encoding_prefactor=True),
  "half_fixed": QSTR(5, 2, indices=tasks.HalfFixed()),
  "first places": QSTR(4, 2, max_length=6),
  "random places": QSTR(4, 2, max_length=6, places="random"),
  "scales": QSTR(4, 2, token_scales=tasks.first_half_scales),
  "few_heads": tasks.FewHeads(),
  "pointwise": tasks.PointwiseQSTR(4, 2),
  **{f: SparseBoolean(6, function=f) for f in ("and", "parity", "table:01101001")},
  "noise": SparseBoolean(6, noise=0.1, subset=(0, 2, 3)),
  "fourier": FourierSparse(6),
  "mixed": FourierSparse(6, mixed=True, signed=True),
  "indicators": FourierSparse(6, convention="indicators"),
  "tiling": FourierSparse(6, function="tiling"),
  "majority": FourierSparse(5, function="majority"),
  "unseen strings": tasks.UnseenStrings(6),
  "chain": ParityChain(5),
  "one_pass": ParityChain(5, mode="one_pass"),
  "unseen chains": tasks.UnseenChains(5),
}


def types(tree):
  """Of all arrays but keys."""
  dtypes = {leaf.dtype for leaf in jax.tree.leaves(tree)}
  return {own.name for own in dtypes if not jnp.issubdtype(own, jax.dtypes.prng_key)}


def drawn(task, key, n=7):
  planted = task.init(key)
  sample = task.sample(key, planted, n)
  return planted, sample, task.encode(planted, sample)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("name", TASKS)
def test_a_sampler_has_one_type(name, wide):
  with jax.enable_x64(wide):
    found = types(
      jax.eval_shape(functools.partial(drawn, TASKS[name]), jax.random.key(0))
    )
  assert found <= ({"float64", "int64"} if wide else {"float32", "int32"})
  assert found


@pytest.mark.usefixtures("in_64_bits")
def test_normal_numbers_in_64_bits():
  found = tasks.normal.normal(jax.random.key(0), (20_000,))
  assert len(np.unique(np.asarray(found).astype(np.float32) - found)) > 10_000
  np.testing.assert_allclose([jnp.mean(found), jnp.std(found)], [0, 1], atol=0.03)


def small_models():
  """Every published model, by its name, with a task; and those without a name."""
  found = {
    f"{task.objective.name} {name}": (models.build(name, task), task)
    for task in (QSTR(4, 2), FourierSparse(6), ParityChain(5), SparseBoolean(6))
    for name in NAMES[task.objective.name]
  }
  for kind in ("deterministic", "trainable", "bag"):
    own = ClsAttention(InputMap(kind, 16), hidden_widths=(3, 4), project=True)
    found[f"ClsAttention {kind}"] = own, SparseBoolean(6)
  found["FlatTransformer"] = FlatTransformer(), QSTR(4, 2)
  return found


MODELS = small_models()
# One of each kind; all of them together take ten seconds.
QUICK = {"transformer", "minimal", "gru", "deterministic", "bag"}


@pytest.mark.usefixtures("in_64_bits")
@pytest.mark.parametrize(
  "name",
  [
    pytest.param(name, marks=() if QUICK & {*name.split()} else pytest.mark.slow)
    for name in MODELS
  ],
)
def test_a_model_has_the_type_of_its_inputs_and_parameters(name):
  """As flax's own layers: in 64 bits where inputs are, or its parameters."""
  model, task = MODELS[name]
  *_, inputs = jax.eval_shape(functools.partial(drawn, task), jax.random.key(0))
  floating = jnp.issubdtype(inputs.dtype, jnp.floating)
  for dtype in (np.float32, np.float64) if floating else (inputs.dtype,):
    own = jax.ShapeDtypeStruct(inputs.shape, dtype)
    first = jax.eval_shape(model.init_with_output, jax.random.key(0), own)
    outputs, variables = first
    (of_params,) = types(variables)
    wanted = {jnp.promote_types(dtype, of_params).name}
    assert types(outputs) == wanted
    if models.evaluates_many(model):
      apply = functools.partial(model.apply, method="evaluate")
      assert types(jax.eval_shape(apply, variables, own)) == wanted


@pytest.mark.usefixtures("in_64_bits")
@pytest.mark.parametrize(
  ("task", "model", "protocol"),
  [
    (QSTR(3, 2), small.Linear(), ONLINE),
    pytest.param(
      *(QSTR(3, 2), small.Linear(), ERM(watched="grad_norm")), marks=pytest.mark.slow
    ),
    (SparseBoolean(6, 2), OnBits(FeedForward((3,), num_outputs=2)), ONLINE),
    pytest.param(
      *(SparseBoolean(6, 2), OnBits(FeedForward((3,), num_outputs=2)), FIXED),
      marks=pytest.mark.slow,
    ),
  ],
)
def test_a_trial_alone_keeps_its_types(task, model, protocol):
  """A step gives a state of the types that it was given."""
  protocol = dataclasses.replace(protocol, optimizer=AdamW())
  trial = protocol.trial(task, task, model, "own")
  seeds = Seeds(jax.random.key(0), jax.random.key(1))
  state, world = jax.eval_shape(trial.init, seeds), jax.eval_shape(trial.world, seeds)
  after = jax.eval_shape(trial.advance, state, world)
  assert jax.tree.map(lambda a: a.dtype, after) == jax.tree.map(lambda a: a.dtype, state)
  assert after.step.dtype == jnp.int32


@pytest.mark.usefixtures("in_64_bits")
def test_an_order_of_samples_is_the_same_in_64_bits():
  places, key = np.arange(50), jax.random.key(3)
  wide = place_in_order(key, jnp.asarray(places), 50)
  with precision.single():
    plain = place_in_order(key, jnp.asarray(places), 50)
  assert sorted(wide.tolist()) == places.tolist()
  np.testing.assert_array_equal(wide, plain)

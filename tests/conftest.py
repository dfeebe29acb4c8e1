"""Two host devices for every test, and programs that compile fast rather than run fast.

Much of the suite's time is compilation of small programs. What one test has compiled,
others take from a directory that lasts as long as the session, or from the one that
`JAX_COMPILATION_CACHE_DIR` names.

Arrays are checked against the shapes and dtypes that functions are annotated with.
"""

import atexit
import importlib.metadata
import os
import shutil
import signal
import sys
import tempfile

os.environ["JAX_NUM_CPU_DEVICES"] = "2"
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.02"
# Else the first worker of several takes three quarters of a GPU's memory.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers have the settings of the first
  # What must hold on an accelerator is about programs as users have them.
  if not any("accelerator" in argument for argument in sys.argv):
    os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"
    as_users = any(own in each for own in ("bits", "faults") for each in sys.argv)
    if importlib.metadata.version("jaxlib").startswith("0.10.") and not as_users:
      # A third less time. Later versions have no such choice, and programs of other
      # widths then have other bits: tests of those, and of whole runs, go without it.
      os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
  if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    directory = tempfile.mkdtemp(prefix="sepfx-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = directory
    atexit.register(shutil.rmtree, directory, ignore_errors=True)

import hypothesis
import jaxtyping
import pytest

from tests import arrays

# Before any of these is imported.
jaxtyping.install_import_hook(
  [
    "experiments.boolean",
    "experiments.capacity",
    "experiments.fourier",
    "experiments.qstr",
    "sepfx.models",
    "sepfx.probes",
    "sepfx.tasks",
    "sepfx.training",
  ],
  f"{arrays.__name__}.{arrays.checked.__name__}",
)

# Programs lowered since the caches were dropped, and how many may be.
_lowered = {"programs": 0}
_MOST_PROGRAMS = 500

hypothesis.settings.register_profile(
  "sepfx", deadline=None, derandomize=True, max_examples=5
)
hypothesis.settings.load_profile("sepfx")


def pytest_addoption(parser):
  parser.addoption("--tf32", action="store_true", help="round products as GPUs do")


def pytest_configure(config):
  if config.getoption("--tf32"):
    from tests import tf32  # which imports what JAX may move

    tf32.install()


def pytest_terminal_summary(terminalreporter, config):
  if "accelerator" in config.getoption("markexpr"):
    import jax  # not before its settings are made

    terminalreporter.write_line(f"ran on {jax.devices()[0].device_kind}")


@pytest.fixture(scope="session", autouse=True)
def counted_programs():
  """Counts programs as they are lowered."""
  import jax  # not before its settings are made

  jax.monitoring.register_event_duration_secs_listener(_count)


@pytest.fixture(autouse=True)
def few_programs(counted_programs):
  """Drops what tests have compiled once it is more than `_MOST_PROGRAMS`.

  JAX keeps an MLIR context with each program, and MLIR looks through all that are alive
  for each new one. With thousands of programs that was more than half of the suite's
  time.
  """
  yield
  import jax

  if _lowered["programs"] > _MOST_PROGRAMS:
    jax.clear_caches()
    _lowered["programs"] = 0


def _count(event, duration, **_):
  _lowered["programs"] += event.endswith("jaxpr_to_mlir_module_duration")


@pytest.fixture
def exact():
  """For digits of models used alone, whose products are what JAX's default makes them."""
  from sepfx import precision  # not before its modules can be checked

  with precision.exact():
    yield


@pytest.fixture
def unchecked_arrays():
  """Leaves wrong arrays to the library, as a user does."""
  jaxtyping.config.update("jaxtyping_disable", True)
  yield
  jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def heard():
  """Ctrl-C is heard, also in tests that a shell runs in the background."""
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  yield
  signal.signal(signal.SIGINT, before)

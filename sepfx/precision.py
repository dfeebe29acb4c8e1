"""The settings of JAX that decide in which numbers trials are computed.

Trials are computed in 32 bits, whatever `jax_enable_x64` is around them: with 64 they
would draw other numbers. Accelerators multiply matrices of float32 in fewer bits unless
they are told not to: trials tell them what their protocol says, and what is exact by
nature is `exact`. JAX's settings are of a thread where a context manager has set them,
and else of the process. Those that trials need go with them into the threads that compile
and measure.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any, Literal, ParamSpec, TypeVar

import jax

_Arguments = ParamSpec("_Arguments")
_Item = TypeVar("_Item")

# Settings of a thread by their names: what is computed, and what of it is checked.
_OF_A_THREAD: dict[str, Callable[[Any], contextlib.AbstractContextManager]] = {
  "jax_enable_x64": jax.enable_x64,
  "jax_default_matmul_precision": jax.default_matmul_precision,
  "jax_debug_nans": jax.debug_nans,
}


# In what accelerators multiply matrices of float32. CPUs do in float32 whatever is asked
# for, GPUs of NVIDIA in TF32 also where bfloat16 is.
MatmulPrecision = Literal["float32", "tensorfloat32", "bfloat16"]


@contextlib.contextmanager
def exact() -> Iterator[None]:
  """Within it products of float32 are float32's on any device; also a decorator."""
  with jax.default_matmul_precision("float32"):
    yield


@contextlib.contextmanager
def single() -> Iterator[None]:
  """Within it this thread computes in 32 bits and is `exact`; also a decorator."""
  with jax.enable_x64(False), exact():
    yield


def steps_in_single(
  generate: Callable[_Arguments, Generator[_Item, None, None]],
) -> Callable[_Arguments, Generator[_Item, None, None]]:
  """A decorator: the generator runs within `single`, and who takes its items does not."""

  @functools.wraps(generate)
  def items(*arguments: _Arguments.args, **options: _Arguments.kwargs):
    own = generate(*arguments, **options)
    try:
      while True:
        with single():
          try:
            item = next(own)
          except StopIteration:
            return
        yield item
    finally:
      with single():
        own.close()

  return items


def carried(function: Callable[_Arguments, _Item]) -> Callable[_Arguments, _Item]:
  """The same function, for other threads: it is called with this thread's settings."""
  here = {name: getattr(jax.config, name) for name in _OF_A_THREAD}

  def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Item:
    with contextlib.ExitStack() as settings:
      for name, setting in _OF_A_THREAD.items():
        settings.enter_context(setting(here[name]))
      return function(*arguments, **options)

  return call

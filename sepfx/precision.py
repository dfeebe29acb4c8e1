"""The settings of JAX that decide in which numbers trials are computed.

Trials are computed in 32 bits, whatever `jax_enable_x64` is around them: with 64 they
would draw other numbers. JAX's settings are of a thread where a context manager has set
them, and else of the process. Those that trials need go with them into the threads that
compile and measure.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator
from typing import Any, ParamSpec, TypeVar

import jax

_Arguments = ParamSpec("_Arguments")
_Item = TypeVar("_Item")

# Settings of a thread by their names: what is computed, and what of it is checked.
_OF_A_THREAD: dict[str, Callable[[Any], contextlib.AbstractContextManager]] = {
  "jax_enable_x64": jax.enable_x64,
  "jax_default_matmul_precision": jax.default_matmul_precision,
  "jax_debug_nans": jax.debug_nans,
}


@contextlib.contextmanager
def single() -> Iterator[None]:
  """Within it this thread computes in 32 bits; also a decorator."""
  with jax.enable_x64(False):
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

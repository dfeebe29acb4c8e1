"""Refuses what is no task of tokens, no mixer, or one that sees the future."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from sepfx.errors import InvalidSetting, require, said
from sepfx.models.mixers import MIXERS, Backbone, check_causal
from sepfx.studies.settings import Chosen
from sepfx.tasks.tokens import TASKS
from sepfx.training.checks import check_model

from .parts import mixers_of, named

# Sequences of a task of somebody's own that are looked at, and of another draw.
_DRAWN, _FEW = 100, 7


def check(chosen: Chosen) -> None:
  """Refuses what is no mixer, one of somebody's own that sees the future, and one task
  twice."""
  tasks = [named(text) for text in chosen.values["task"]]
  names = [task.name for task in tasks]
  takes = "tasks of different names: difficulties are an axis, as in --num_pairs=4,8"
  require(len(set(names)) == len(names), "task", ",".join(chosen.values["task"]), takes)
  for task, text in zip(tasks, chosen.values["task"], strict=True):
    if type(task) not in {type(known) for known in TASKS.values()}:
      _check_task(task, text)
  lengths = chosen.further.get("length", [task.length for task in tasks])
  for name in chosen.values["model"]:
    for width in chosen.values["width"]:
      for length in sorted({*lengths}):
        _check_mixers(name, width, length)


def _check_task(task: Any, text: str) -> None:
  """Refuses one of somebody's own whose sequences are none, by drawing some."""

  def draw(keys: PRNGKeyArray, number: int) -> tuple[Any, Any, Any]:
    planted = task.init(keys[0])
    sample = task.sample(keys[1], planted, number)
    encoded = task.encode(planted, sample)
    tokens, asked = encoded if isinstance(encoded, tuple) else (encoded, None)
    return tokens, asked, sample.labels

  try:
    N, V, best = task.length, task.vocabulary, task.best_constant_error()
    of_planted, *of_samples = jax.random.split(jax.random.key(0), 3)
    both = [jnp.stack([of_planted, own]) for own in of_samples]
    hundred = jax.jit(functools.partial(draw, number=_DRAWN))
    drawn, others = ([*map(np.asarray, hundred(keys))] for keys in both)
    few = jax.eval_shape(functools.partial(draw, number=_FEW), both[0])
  except Exception as error:
    takes = "a task of tokens, such as subclasses of sepfx.tasks.tokens.TokenTask "
    raise InvalidSetting("task", text, f"{takes}({said(error)})") from error
  takes = f"a task with a name of its own: {task.name} is another task here"
  require(task.name not in TASKS, "task", text, takes)
  # Numbers of NumPy are drawn once, when what draws is compiled; here it is once, too.
  takes = "a task that draws with its key, by jax.random (two keys gave the same tokens)"
  require(not all(map(np.array_equal, drawn[:2], others)), "task", text, takes)
  takes = f"a task that draws as many sequences as it is asked for ({len(few[0])}, not "
  require(len(few[0]) == _FEW, "task", text, f"{takes}{_FEW})")
  tokens, asked, labels = drawn
  if asked.ndim == 0:  # None: all positions are
    asked = np.broadcast_to(np.arange(N), (_DRAWN, N))
  M = asked.shape[-1] if asked.ndim == 2 else 1
  ranges = {
    "tokens": (tokens, N, 0, V),
    "asked": (asked, M, 0, N),
    "labels": (labels, M, -1, V),
  }
  for name, (own, width, first, end) in ranges.items():
    takes = f"a task with integer {name} of shape {(_DRAWN, width)} (these are "
    takes += f"{own.dtype} of shape {own.shape})"
    proper = np.issubdtype(own.dtype, np.integer) and own.shape == (_DRAWN, width)
    require(proper, "task", text, takes)
    takes = f"a task with {name} from {first} to {end - 1} (these: {own.min()} to "
    takes += f"{own.max()})"
    require(bool(first <= own.min() and own.max() < end), "task", text, takes)
  asks = bool(np.any(labels >= 0))
  require(asks, "task", text, "a task that asks for something (all labels are -1)")
  takes = f"a task with a best_constant_error above 0, not {best:g}: where it is 1 - 1 / "
  takes += "num_answers, these are the tokens among which answers are"
  require(best > 0, "task", text, takes)


def _check_mixers(name: str, width: int, length: int) -> None:
  mixers = mixers_of(name)
  rows = jax.random.normal(jax.random.key(0), (2, length, width))
  try:
    model = Backbone(name, num_layers=len(mixers), width=width, mlp_width=0)
    jax.eval_shape(model.init, jax.random.key(0), rows)
    model.state_size(length)
    if not {*mixers} <= {*MIXERS}:
      check_model(model, name, rows, rows.shape[:2])
      check_causal(model, rows, name)
  except InvalidSetting as error:
    own = error.setting == "mixers"
    raise InvalidSetting("model" if own else error.setting, name, error.takes) from error
  except Exception as error:
    if {*mixers} <= {*MIXERS}:
      raise
    # A mixer of somebody's own may raise anything.
    takes = "mixers, flax.linen modules with a field width of [n N width] -> [n N width] "
    takes += f"for any N (with N = {length} {said(error)})"
    raise InvalidSetting("model", name, takes) from error

"""What a trial is made of, what records call it, and what its protocol has to say."""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import flax.linen as nn
import jax
from jaxtyping import Array, Bool, Int

from sepfx import specifications
from sepfx.models import record_name
from sepfx.models.building import modes
from sepfx.tasks.objectives import Objective
from sepfx.training.states import Report, Seeds, State, World

_Trial = TypeVar("_Trial", bound="TrialInterface")
_Arguments = ParamSpec("_Arguments")
_Returned = TypeVar("_Returned")


def at_its_precision(
  method: Callable[Concatenate[_Trial, _Arguments], _Returned],
) -> Callable[Concatenate[_Trial, _Arguments], _Returned]:
  """A decorator of methods: matrices are multiplied as the trial's protocol says.

  For what a model computes. Its initial weights, samples and inputs are exact.
  """

  @functools.wraps(method)
  def call(trial: _Trial, *arguments: _Arguments.args, **options: _Arguments.kwargs):
    with trial.own_precision():
      return method(trial, *arguments, **options)

  return call


@dataclasses.dataclass(frozen=True)
class TrialInterface(abc.ABC):
  """A trial without what all protocols compute alike, which `Trial` adds.

  Attributes:
    task: what the training samples are drawn from.
    test_task: what the test samples are drawn from; shares `task`'s planted
      parameters.
    model: a `flax.linen` module with parameters only, from the task's inputs to the
      outputs of its objective.
    protocol: the settings.
    model_name: how records call the model; "" for its class with the fields that are not
      at their defaults.
  """

  task: Any
  test_task: Any
  model: nn.Module
  protocol: Any
  model_name: str = ""

  @property
  def objective(self) -> Objective:
    """What is minimised and measured."""
    return self.task.objective

  @property
  def coordinates(self) -> dict[str, Any]:
    """What tells a cell from others, but for the axes of its grid."""
    return {
      "task": self.task.name,
      "model": self.model_name or record_name(self.model),
      "length": self.task.length,
      **self.protocol.coordinates,
    }

  @property
  def key_name(self) -> str:
    """What a trial's keys are folded from, together with the seed and its index.

    The model's fields are not in it, nor is any other setting: runs that differ in
    those are paired trial by trial.
    """
    coordinates = self.coordinates
    coordinates["model"] = specifications.base(coordinates["model"])
    return "/".join(f"{key}={value}" for key, value in coordinates.items())

  @property
  def mode(self) -> str:
    """By what the model is told whether it learns, as "train"; "" for nothing."""
    return modes.described(self.model)

  def own_precision(self) -> contextlib.AbstractContextManager[None]:
    """Within it matrices are multiplied as the protocol says; by default in float32."""
    own = getattr(self.protocol, "matmul_precision", "float32")
    return jax.default_matmul_precision(own)

  @property
  def exact(self: _Trial) -> _Trial:
    """This trial, with matrices of float32 multiplied as such on any device."""
    # Not by the constructor, which checks: fields may be tracers.
    protocol = copy.copy(self.protocol)
    object.__setattr__(protocol, "matmul_precision", "float32")
    return dataclasses.replace(self, protocol=protocol)

  @property
  def most_steps(self) -> int:
    """Steps of a trial that spends its budget."""
    return self.protocol.num_checks * self.protocol.check_every

  @property
  def run_to_end(self) -> bool:
    """Whether a trial goes on when all its thresholds are reached."""
    return False

  # What a protocol says.

  @property
  @abc.abstractmethod
  def progress(self) -> tuple[str, int]:
    """What a curve is drawn against, and how much of it lies between two checks."""

  @property
  @abc.abstractmethod
  def watched(self) -> str:
    """What of a curve thresholds are held against."""

  @property
  @abc.abstractmethod
  def samples_a_step(self) -> int:
    """Samples that one gradient is taken on."""

  @property
  @abc.abstractmethod
  def columns(self) -> dict[str, type]:
    """Names, as records call them, and types of what `outcomes` gives."""

  @abc.abstractmethod
  def blank(self) -> tuple[Any, Any]:
    """Returns a curve of no checks yet and the memory before the first."""

  @abc.abstractmethod
  def world(self, seeds: Seeds) -> World:
    """Draws what stays fixed: planted parameters, samples."""

  @abc.abstractmethod
  def batch(self, world: World, step: Int[Array, ""] | int) -> Any:
    """Returns the sample that the step takes its gradient on.

    Where `draws_rows`, `batch(world, step, rows)` takes the rows that are known already.
    """

  @property
  def draws_rows(self) -> bool:
    """Whether batches are parts of one fixed sample."""
    return False

  def rows(self, world: World, steps: Int[Array, " s"]) -> Int[Array, "s n"]:
    """Returns of which rows of the sample the batches of some steps are made."""
    raise TypeError(f"{type(self.protocol).__name__} draws no rows of a sample")

  @abc.abstractmethod
  def evaluate(self, state: State, world: World) -> State:
    """Measures, records, and decides whether the trial ends."""

  @abc.abstractmethod
  def outcomes(self, report: Report) -> Sequence[tuple]:
    """Returns what the trial came to, one tuple per row of its records."""

  # Of an evaluation in two stages, for lanes that are computed together.

  @property
  def glances(self) -> bool:
    """Whether there is such an evaluation; it has to come to what `evaluate` does."""
    return False

  def glance(self, state: State, world: World) -> tuple[State, Bool[Array, ""]]:
    """Evaluates on the first test samples alone.

    Returns:
      The state with what they tell recorded, and whether that decides: where it does not,
      `evaluate_in_full` is to follow on the state before.
    """
    raise TypeError(f"{type(self).__name__} has one evaluation")

  def evaluate_in_full(self, state: State, world: World) -> State:
    """Evaluates on all test samples, and records what they tell, where `glances`."""
    raise TypeError(f"{type(self).__name__} has one evaluation")

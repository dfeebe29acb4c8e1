"""Trained weights on disk: one safetensors file per trial, readable without sepfx.

The arrays have their paths in the model's parameters as names ("hidden/kernel"). The
file's metadata says, as JSON, which trial it is and what the model is.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import flax.traverse_util
import numpy as np
import safetensors
import safetensors.numpy

from sepfx import specifications
from sepfx.errors import InvalidSetting

DIRECTORY = "weights"


class Trained(NamedTuple):
  """A model with the weights at a trial's end.

  Attributes:
    model: the module; None if its class cannot be imported, or a field of it could not
      be written down.
    params: its parameters, in NumPy.
  """

  model: nn.Module | None
  params: Any

  def __call__(self, inputs: Any) -> Any:
    """The model's outputs, without dropout."""
    assert self.model is not None
    return self.model.apply({"params": self.params}, inputs)


def path_of(name: str) -> str:
  """Where a trial's weights are in its run directory."""
  return f"{DIRECTORY}/{name}.safetensors"


def serialised(name: str, model: nn.Module, params: Any) -> bytes:
  """Returns the content of a trial's file."""
  flat = flax.traverse_util.flatten_dict(params, sep="/")
  arrays = {key: np.ascontiguousarray(array) for key, array in flat.items()}
  described = json.dumps(specifications.described(model))
  return safetensors.numpy.save(arrays, {"trial": name, "model": described})


class Kept(Mapping[str, Trained]):
  """The models and weights of a run, read when they are asked for, by trial name."""

  def __init__(self, directory: pathlib.Path, names: Sequence[str]):
    """Reads nothing yet.

    Args:
      directory: of the run.
      names: of all its trials.
    """
    self._directory = directory
    self._names = [name for name in names if (directory / path_of(name)).exists()]

  def __getitem__(self, name: str) -> Trained:
    if name not in self._names:
      raise KeyError(name)
    with safetensors.safe_open(self._directory / path_of(name), "numpy") as file:
      flat = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
      described = json.loads(file.metadata()["model"])
    params = flax.traverse_util.unflatten_dict(flat, sep="/")
    try:
      return Trained(specifications.rebuilt(described), params)
    except InvalidSetting:  # a class of a notebook, or of a script that has ended
      return Trained(None, params)

  def __iter__(self) -> Iterator[str]:
    return iter(self._names)

  def __len__(self) -> int:
    return len(self._names)

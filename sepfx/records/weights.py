"""Trained weights on disk: one safetensors file per trial, readable without sepfx.

The arrays have their paths in the model's parameters as names ("hidden/kernel"), places
in lists in brackets ("blocks/[0]/kernel"). The file's metadata says, as JSON, which trial
it is and what the model is.
"""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, cast

import flax.errors
import flax.linen as nn
import flax.traverse_util
import numpy as np
import safetensors.numpy

from sepfx import descriptions
from sepfx.errors import InvalidSetting, said
from sepfx.models import predict
from sepfx.trusted import known_classes

DIRECTORY = "weights"
_METADATA = "__metadata__"


class NoModule:
  """Stands for a module that cannot be made of what a file says of it; is false.

  Whoever uses it is told how to get the module.
  """

  def __init__(self, got: str, takes: str):
    self._got, self._takes = got, takes

  def __bool__(self) -> bool:
    return False

  def __repr__(self) -> str:
    return f"<no module: {self._error}>"

  @property
  def _error(self) -> InvalidSetting:
    return InvalidSetting("model", self._got, self._takes)

  def __call__(self, *_: Any, **__: Any) -> NoReturn:
    raise self._error

  def __getattr__(self, name: str) -> NoReturn:
    if name.startswith("_"):  # what Python and notebooks look for
      raise AttributeError(name)
    raise self._error


class Trained(NamedTuple):
  """A model with the weights at a trial's end.

  Attributes:
    model: the module; a `NoModule` if its class is none of this package and was not
      named, or a field of it could not be written down.
    params: its parameters, in NumPy.
    description: its class and fields as JSON values, of `descriptions.described`.
  """

  model: nn.Module | NoModule
  params: Any
  description: Mapping[str, Any]

  def __call__(self, inputs: Any) -> Any:
    """The model's outputs, without dropout.

    Raises:
      InvalidSetting: if there is no module, or inputs and weights do not fit it.
    """
    try:
      return predict(cast(nn.Module, self.model), self.params, inputs)
    except (flax.errors.FlaxError, TypeError) as error:
      takes = f"inputs that fit {self.model!r} and its weights ({said(error)})"
      raise InvalidSetting("inputs", np.shape(inputs), takes) from error


def trained(model: nn.Module, params: Any) -> Trained:
  """A module that is at hand with its weights."""
  return Trained(model, params, descriptions.described(model))


def path_of(name: str) -> str:
  """Where a trial's weights are in its run directory."""
  return f"{DIRECTORY}/{name}.safetensors"


def serialised(name: str, model: nn.Module, params: Any) -> bytes:
  """Returns the content of a trial's file."""
  flat = flax.traverse_util.flatten_dict(params)
  arrays = {
    "/".join(f"[{part}]" if isinstance(part, int) else part for part in path): (
      np.ascontiguousarray(array)
    )
    for path, array in flat.items()
  }
  described = json.dumps(descriptions.described(model))
  return _saved(arrays, {"trial": name, "model": described})


def renamed(directory: pathlib.Path, old: str, new: str) -> bytes:
  """Returns the content of a trial's file as it is when the trial has a new name.

  Raises:
    InvalidSetting: as `read`.
  """
  content = read(directory, old)
  metadata = {"trial": new, "model": json.dumps(content.description)}
  return _saved(content.arrays, metadata)


def _saved(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> bytes:
  """A file's content, with its metadata in one order: the library's own is by chance."""
  content = safetensors.numpy.save(arrays, metadata)
  end = 8 + int.from_bytes(content[:8], "little")
  header = {**json.loads(content[8:end]), _METADATA: metadata}
  text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
  text += b" " * (-len(text) % 8)
  return len(text).to_bytes(8, "little") + text + content[end:]


class Content(NamedTuple):
  """What a file holds.

  Attributes:
    arrays: by their paths in the parameters, "hidden/kernel".
    params: those arrays as a tree.
    description: of the model.
  """

  arrays: dict[str, np.ndarray]
  params: Any
  description: Mapping[str, Any]

  @property
  def form(self) -> dict[str, tuple]:
    """Shapes and dtypes of the arrays."""
    return {key: (own.shape, str(own.dtype)) for key, own in sorted(self.arrays.items())}


def read(directory: pathlib.Path, name: str) -> Content:
  """Reads a trial's file.

  Args:
    directory: of the run.
    name: of the trial.

  Raises:
    InvalidSetting: if it is damaged, or another trial's.
    OSError: if it cannot be read.
  """
  path = directory / path_of(name)
  content = path.read_bytes()
  try:
    arrays = safetensors.numpy.load(content)
    size = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + size])[_METADATA]
    trial, description = metadata["trial"], json.loads(metadata["model"])
    descriptions.class_names(description)
    paths = [_path(key) for key in arrays]
    params = flax.traverse_util.unflatten_dict(
      dict(zip(paths, arrays.values(), strict=True))
    )
    again = flax.traverse_util.flatten_dict(params)
    if again.keys() != set(paths) or not all(arrays):
      raise ValueError("names of arrays that are no paths")
  except Exception as error:  # safetensors, JSON and flax raise many kinds
    takes = f"weights as a run wrote them: it is damaged ({error!r})"
    raise _refused(path, takes) from error
  if not _is_of(trial, name):
    raise _refused(path, f"the weights of {name}: these are of {trial}")
  return Content(arrays, params, description)


def _is_of(trial: Any, name: str) -> bool:
  """Whether a file says that it is of this trial.

  One that stood in a directory before it got a further axis may lack that.
  """
  parts = trial.split("/") if isinstance(trial, str) else []
  return len(parts) > 3 and set(parts) <= set(name.split("/"))


def _path(key: str) -> tuple[str | int, ...]:
  """The place of an array in its tree: "blocks/[0]/kernel" is of the first of a list."""
  return tuple(
    int(part[1:-1]) if re.fullmatch(r"\[\d+\]", part) else part for part in key.split("/")
  )


class Kept(Mapping[str, Trained]):
  """The models and weights of a run, read when they are asked for, by trial name."""

  def __init__(
    self,
    directory: pathlib.Path,
    names: Sequence[str],
    *,
    known: Mapping[str, type] | None = None,
    modules: Mapping[str, nn.Module] | None = None,
    places: Mapping[str, pathlib.Path] | None = None,
  ):
    """Reads nothing yet.

    Args:
      directory: of the run.
      names: of all its trials.
      known: classes that may be made of what files say, by their qualified names; None
        for this package's own.
      modules: of trials whose module is at hand, by the trial's name.
      places: the directory in which a trial's are, by its name; None for that of the run.
    """
    there = [name for name in names if (directory / path_of(name)).exists()]
    self._places = dict.fromkeys(there, directory) if places is None else places
    self._names = [name for name in names if name in self._places]
    self._known = known_classes() if known is None else known
    self._modules = modules or {}

  def __getitem__(self, name: str) -> Trained:
    if name not in self._names:
      raise KeyError(name)
    content = read(self._places[name], name)
    own = self._modules.get(name)
    model = own if own is not None else self._made(name, content.description)
    return Trained(model, content.params, content.description)

  def _made(self, name: str, description: Mapping[str, Any]) -> nn.Module | NoModule:
    names = descriptions.class_names(description)
    if not names:
      takes = "a module whose fields are numbers, texts and modules: a field of this one "
      takes += "could not be written down. Make it yourself, and apply it to .params"
      return NoModule(str(description.get("repr")), takes)
    if unknown := [own for own in names if own not in self._known]:
      classes = ", ".join(own.replace(":", ".").rpartition(".")[2] for own in unknown)
      takes = "a class of this package, or one that the call names if you trust it: "
      takes += f"sepfx.load(directory, classes=[{classes}])"
      return NoModule(", ".join(unknown), takes)
    try:
      return descriptions.rebuilt(description, self._known)
    except ValueError as error:
      path = self._places[name] / path_of(name)
      raise _refused(path, f"the description of a module ({error})") from error

  def __iter__(self) -> Iterator[str]:
    return iter(self._names)

  def __len__(self) -> int:
    return len(self._names)


def _refused(path: pathlib.Path, takes: str) -> InvalidSetting:
  return InvalidSetting("weights", str(path), takes)

"""What is measured of a trial when it has ended: how theory meets training.

A probe is a pure function of (trial, trained parameters, world, key) to named scalars. It
runs in a program of its own, once for each trial, and changes nothing of the training.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from sepfx import kinds, specifications
from sepfx.errors import InvalidSetting, require, said
from sepfx.probes.attention import attention
from sepfx.probes.chains import chain
from sepfx.probes.clipped import clipped
from sepfx.probes.generalisation import generalisation
from sepfx.probes.gradients import gradient
from sepfx.probes.norms import norms
from sepfx.probes.risks import risk
from sepfx.probes.sharpness import sharpness
from sepfx.probes.spans import span
from sepfx.probes.states import states
from sepfx.probes.stationarity import stationarity
from sepfx.training import Probe, Probes, Seeds, Trial

__all__ = [
  "NAMES",
  "attention",
  "build",
  "chain",
  "clipped",
  "combined",
  "generalisation",
  "gradient",
  "norms",
  "risk",
  "sharpness",
  "span",
  "states",
  "stationarity",
  "value_names",
]

# Name -> what makes the probe from the fields of its specification.
_BUILT_IN: dict[str, Callable[..., Probe]] = {
  "norms": lambda: norms,
  "attention": lambda: attention,
  "chain": lambda: chain,
  "clipped": clipped,
  "generalisation": lambda: generalisation,
  "gradient": lambda: gradient,
  "risk": risk,
  "sharpness": sharpness,
  "span": lambda: span,
  "states": lambda: states,
  "stationarity": lambda: stationarity,
}
NAMES = tuple(_BUILT_IN)


def build(text: str) -> Probe:
  """Returns a probe by its specification.

  Args:
    text: one of `NAMES`, "risk:length=16" with fields of `sepfx.probes.risk` or of a task
      of tokens, or "package.module:function" with a probe of one's own.

  Raises:
    InvalidSetting: for a name that is neither.
  """
  specification = specifications.parse(text, "probes")
  takes = f"{', '.join(NAMES)} or package.module:function"
  if specification.name not in _BUILT_IN:
    own = specifications.imported(specification.name, "probes", takes)
    require(callable(own) and not specification.fields, "probes", text, takes)
    return own
  factory = _BUILT_IN[specification.name]
  known, others = kinds.fields_of(factory), {}
  if factory is risk:  # other fields are the task's, which knows their types
    others = {k: v for k, v in specification.fields.items() if k not in known}
  fields = {k: v for k, v in specification.fields.items() if k not in others}
  own = specifications.typed(specification._replace(fields=fields), factory, "probes")
  return factory(**own, **others)


def combined(
  probes: str | Probe | Iterable[str | Probe],
  trials: Sequence[Trial],
  columns: Collection[str] = (),
) -> Probes | None:
  """Returns all probes as one, after checking each on every trial.

  Only shapes are computed.

  Args:
    probes: specifications or functions; one may stand for a sequence of one.
    trials: those that they are to measure.
    columns: of the records, which no value may be called like.

  Returns:
    None if there are none.

  Raises:
    InvalidSetting: for a probe that fails on a trial or gives what are no scalars, and
      for a name of a value that two probes or a column have, or that cannot be printed.
  """
  takes = f"{', '.join(NAMES)}, package.module:function, or functions"
  if isinstance(probes, str) or callable(probes):
    given = [probes]
  else:
    require(isinstance(probes, Iterable), "probes", probes, takes)
    given = list(probes)
  each = {_name(own): build(own) if isinstance(own, str) else own for own in given}
  require(len(each) == len(given), "probes", [*map(_name, given)], "each probe once")
  if not each:
    return None
  checked = set()
  for trial in trials:
    structure = jax.tree.structure(trial)
    if structure not in checked:
      checked.add(structure)
      _check(each, trial, columns)
  return Probes(each)


def value_names(probe: Probe | None, trial: Trial) -> list[str]:
  """Names of the values that a probe, if there is one, gives of a trial."""
  return list(_shapes(probe, trial)) if probe is not None else []


def _shapes(probe: Probe, trial: Trial) -> Any:
  """Shapes of what a probe returns, of a trial whose settings are data as in a run."""
  seeds = Seeds(jax.random.key(0), jax.random.key(0))
  params, world = trial.state_shapes().params, jax.eval_shape(trial.world, seeds)
  leaves, structure = jax.tree.flatten(trial)

  def values(leaves: Any, params: Any, world: Any, key: PRNGKeyArray) -> Any:
    return probe(jax.tree.unflatten(structure, leaves), params, world, key)

  return jax.eval_shape(values, leaves, params, world, seeds.trial)


def _name(own: Any) -> str:
  return own if isinstance(own, str) else getattr(own, "__name__", repr(own))


def _check(probes: Mapping[str, Probe], trial: Trial, columns: Collection[str]) -> None:
  takes = "a probe that returns finite-typed scalars by name"
  seen: dict[str, str] = {}
  for name, probe in probes.items():
    try:
      found = _shapes(probe, trial)
    except InvalidSetting as error:
      if error.setting == "probes":
        raise
      says = f"{error.takes} as {error.setting} (it has {error.got!r})"
      raise InvalidSetting("probes", name, says) from error
    except Exception as error:
      on = f"on {trial.coordinates['model']}"
      raise InvalidSetting("probes", name, f"{takes} ({on} {said(error)})") from error
    require(isinstance(found, Mapping), "probes", name, f"{takes}, a dict")
    for value, shape in found.items():
      dtype = getattr(shape, "dtype", None)
      got = f"{value} is {getattr(shape, 'shape', type(shape).__name__)} of {dtype}"
      number = dtype is not None and jnp.issubdtype(dtype, jnp.number)
      scalar = number and shape.shape == () and not jnp.iscomplexobj(shape)
      require(scalar, "probes", name, f"{takes} ({got})")
      require(
        value not in seen, "probes", name, f"names not {seen.get(value)}'s: {value}"
      )
      proper = isinstance(value, str) and value.isprintable() and value != ""
      require(proper, "probes", name, f"{takes}, not by {value!r}")
      takes_another = f"other names than those of the records' columns: {value}"
      require(value not in columns, "probes", name, takes_another)
      seen[value] = name

"""Measures trials that have ended while others go on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sepfx import precision
from sepfx.ensembles import keys
from sepfx.ensembles.advance import Leaves
from sepfx.ensembles.lanes import KeyData
from sepfx.ensembles.programs import Job
from sepfx.ensembles.results import Result
from sepfx.training import Probe, Seeds, probe_key


class Prober:
  """Measures trials that have ended, in a thread of its own, while others go on.

  Every process measures all of them: what it needs is with each of them already.
  """

  def __init__(self, probe: Probe):
    self._probe = probe
    self._programs: dict[Any, Callable] = {}
    self._pool = ThreadPoolExecutor(max_workers=1)

  def __call__(self, job: Job, result: Result) -> Future[Result]:
    """Starts to measure; the future has the result with its probes."""
    return self._pool.submit(precision.carried(self._measured), job, result)

  def close(self) -> None:
    """Gives up what has not begun."""
    self._pool.shutdown(cancel_futures=True)

  def _measured(self, job: Job, result: Result) -> Result:
    structure = jax.tree.structure(job.cell.trial)
    if structure not in self._programs:
      self._programs[structure] = jax.jit(functools.partial(self._values, structure))
    program = self._programs[structure]
    try:
      found = jax.device_get(program(job.leaves, job.key_data, result.params))
    except FloatingPointError as error:
      raise FloatingPointError(f"{error}, in a probe of {result.name}") from error
    diverged = any(outcome[-1] == "diverged" for outcome in result.outcomes)
    values = {k: np.nan if diverged else float(value) for k, value in found.items()}
    return result._replace(probes=values)

  def _values(self, structure: Any, leaves: Leaves, key_data: KeyData, params: Any):
    trial = jax.tree.unflatten(structure, leaves)
    seeds = Seeds(*(keys.wrap_key_data(jnp.asarray(own)) for own in key_data))
    return self._probe(trial, params, trial.world(seeds), probe_key(seeds))

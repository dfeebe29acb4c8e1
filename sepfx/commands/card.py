"""What every process of a run has to be started with alike."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any

import jax
from absl import flags

from sepfx.provenance.environment import source_digest
from sepfx.studies.settings import Chosen
from sepfx.studies.settings import fields as fields_of

# Flags of the study's skeleton that decide what is computed, or where it is kept.
_FLAGS = ("lanes", "probes", "keep_weights", "beside", "classes", "against")
_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "orbax-checkpoint")
_OF_JAX = (
  "jax_debug_nans", "jax_default_prng_impl", "jax_threefry_partitionable",
)  # fmt: skip


def made(study: str, chosen: Chosen) -> dict[str, str]:
  """Returns what must not differ, each as text, by the flag's name where it is one.

  Args:
    study: its name.
    chosen: its settings.
  """
  values: dict[str, Any] = {"study": study}
  for flag, field in fields_of(chosen.cls).items():
    values[flag] = ",".join(map(str, chosen.values[field.name]))
  values |= {name: ",".join(map(str, own)) for name, own in chosen.further.items()}
  values |= {name: getattr(flags.FLAGS, name) for name in _FLAGS}
  values["output_dir"] = os.path.abspath(flags.FLAGS.output_dir)
  values["version of python"] = platform.python_version()
  for package in _PACKAGES:
    values[f"version of {package}"] = importlib.metadata.version(package)
  values["source code"] = source_digest()
  values |= {name: getattr(jax.config, name) for name in _OF_JAX}
  return {name: str(value) for name, value in values.items()}

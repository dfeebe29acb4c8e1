"""How far are Lemmas B.2 to B.4 from their g where positions are not orthogonal?

    python -m benchmarks.coherence

Prints the largest error over all 2^T inputs and every eleventh of the C(T, s) subsets, in
float64, beside gamma / 4.
"""

from __future__ import annotations

import itertools

import jax
import numpy as np
import rich.console
import rich.table

from experiments.boolean.construction import Selection, selection

_LENGTH, _SPARSITY, _EVERY = 12, 3, 11
_COHERENCES = (0.0, 0.05, 0.1)
_LEMMAS = {"B.2": "deterministic", "B.3": "trainable", "B.4": "bag"}


def main() -> None:
  subsets = list(itertools.combinations(range(_LENGTH), _SPARSITY))[::_EVERY]
  bits = np.array(list(itertools.product((0, 1), repeat=_LENGTH)), np.int32)
  table = rich.table.Table("lemma", "g", "gamma/4", *map(str, _COHERENCES))
  for (lemma, kind), vector in itertools.product(_LEMMAS.items(), (False, True)):
    errors = []
    for coherence in _COHERENCES if kind != "trainable" else (0.0,):
      built = [
        selection(kind, _LENGTH, subset, vector=vector, coherence=coherence)
        for subset in subsets
      ]
      errors.append(f"{max(_error(each, bits) for each in built):.3f}")
    shape = "vector" if vector else "scalar"
    table.add_row(lemma, shape, f"{built[0].gamma / 4:.3f}", *errors)
  rich.console.Console().print(table)


def _error(built: Selection, bits: np.ndarray) -> float:
  target = built.target(bits[:, list(built.subset)])
  read = built.model.apply({"params": built.params}, bits, method="heads")
  return float(np.max(np.abs(np.asarray(read)[:, : target.shape[1]] - target)))


if __name__ == "__main__":
  with jax.enable_x64(True):
    main()

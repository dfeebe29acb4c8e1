"""The papers' weights, as parameters of `sepfx.models`."""

from sepfx.constructions.retrieval import (
  Retrieval,
  lemma_11_alpha,
  norm_bounds,
  retrieval_transformer,
)

__all__ = ["Retrieval", "lemma_11_alpha", "norm_bounds", "retrieval_transformer"]

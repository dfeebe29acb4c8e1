"""What theory says of the tasks: floors and bounds, as functions."""

from sepfx.theory.exhaustive import exhaustive_success

__all__ = ["exhaustive_success"]

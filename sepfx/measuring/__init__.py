"""Calls that measure from Python: one's own tasks and models, and whole studies."""

from sepfx.measuring.measurement import measure
from sepfx.measuring.studies import run

__all__ = ["measure", "run"]

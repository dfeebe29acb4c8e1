"""One run directory: its lock, rows, curves, probes, weights and checkpoints."""

from sepfx.records.loading import load

__all__ = ["load"]

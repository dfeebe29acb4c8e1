"""Figures of summaries: looks, legends, ticks; lines with intervals, arrows of bounds."""

from sepfx.drawing import best_figures, figures, looks, success_figures

__all__ = ["best_figures", "figures", "looks", "success_figures"]

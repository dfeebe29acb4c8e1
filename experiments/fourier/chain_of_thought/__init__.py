"""Parities learned in steps: the study, its summary, figure and construction."""

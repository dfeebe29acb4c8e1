"""Bounds of the paper, as functions of N, q, d and the rest."""

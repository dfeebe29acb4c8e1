"""Exponents of n, measured and proven, from finished runs."""

"""Gaps of generalisation by degree and width of the function."""

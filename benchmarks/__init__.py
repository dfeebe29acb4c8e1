"""Measurements of the program itself: numbers for the docs, never tests."""

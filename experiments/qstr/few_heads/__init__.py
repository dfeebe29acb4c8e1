"""Fewer heads than tokens to retrieve."""

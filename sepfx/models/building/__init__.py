"""Models by their names: specifications, sizes, what makes a module."""

"""What every study shares: settings, the grid, one run, tables."""

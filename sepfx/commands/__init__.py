"""Studies as programs: which there are, their flags, help and presets, their reports."""

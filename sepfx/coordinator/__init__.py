"""Processes of one run that advance together: `--distributed`."""

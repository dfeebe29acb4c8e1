"""Where trained attention looks, and which channels carry the function."""

"""One module a figure: flags -> config -> run -> figure. Presets in `flags/`."""

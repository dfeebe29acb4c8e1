"""One module per figure: flags -> config -> run -> figure. Presets in `flags/`.

Installed as `sepfx.experiments`.
"""

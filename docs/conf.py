"""The documentation site: `sphinx-build -W docs _site`."""

import importlib.metadata
import re

project = "sepfx"
author = "the sepfx authors"
release = version = importlib.metadata.version("sepfx")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["results", "paper/text.md"]
html_theme = "furo"
html_title = f"sepfx {release}"

myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath"]

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_use_ivar = True


def _escape(app, what, name, obj, options, lines):
  """Docstrings are plain text with `code`: marks of reStructuredText mean themselves."""
  for k, line in enumerate(lines):
    parts = re.split(r"(`[^`]*`)", line)
    marks = r"([*|\\]|(?<=\w)_(?!\w))"
    parts[::2] = [re.sub(marks, r"\\\1", part) for part in parts[::2]]
    # `Cell`s: a mark of code ends at a blank alone.
    parts[2::2] = [re.sub(r"^(?=\w)", r"\\ ", part) for part in parts[2::2]]
    lines[k] = "".join(parts)


def setup(app):
  app.connect("autodoc-process-docstring", _escape, priority=100)

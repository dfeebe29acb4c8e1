"""What the studies of functions with few Fourier components print."""

from __future__ import annotations

from typing import Any

import rich.table

from sepfx.studies.tables import critical_size, interval_text


def gaps(summary: dict) -> list[Any]:
  """Generalisation gaps of each cell, and what they grow with."""
  table = rich.table.Table(
    "model", "degree", "k", "got there", "gap of those", "gap of all", "population risk"
  )
  for cell in summary["cells"]:
    table.add_row(
      cell["series"],
      str(cell["degree"]),
      str(cell["num_components"]),
      f"{cell['reached']} of {cell['trials']}",
      *(_range(cell, name) for name in ("gap", "gap_all", "population_risk")),
    )
  parts: list[Any] = [
    table,
    "Medians, with the smallest and the largest of the functions.",
  ]
  for name, fit in summary["fits"].items():
    if "e" in fit:
      text = ", ".join(f"{key} = {interval_text(fit, key)}" for key in ("b", "c", "e"))
      parts.append(
        f"{name}: log gap = a + b log d + c log k + e log d log k, over "
        f"{fit['trials']} trials ({fit['left_out']} left out): {text}"
      )
    for kind, own in summary["correlations"][name].items():
      if "rho" in own:
        parts.append(
          f"{name}: rank correlation of gap and d k, {kind}: {interval_text(own, 'rho')}"
        )
  return parts


def _range(cell: dict, name: str) -> str:
  middle, least, most = (cell[f"{name}_{of}"] for of in ("median", "least", "most"))
  return "" if middle is None else f"{middle:.3g} [{least:.3g} to {most:.3g}]"


def chains(summary: dict) -> list[Any]:
  """Critical sample sizes in strings and in labels, and errors of steps and answers."""
  sizes = rich.table.Table(
    "model", "T", "n at which half succeed", "in labels", "failed", "successes at each n"
  )
  errors = rich.table.Table("model", "T", "p", "error of the answer", "(T - 1) p")
  for critical, steps in zip(summary["critical"], summary["steps"], strict=True):
    where = (critical["series"], critical["length"])
    cells = [c for c in summary["cells"] if (c["series"], c["length"]) == where]
    counts = [f"{c['sample_size']}: {c['reached']}/{c['trials']}" for c in cells]
    failed = f"{critical['failed']} of {critical['trials']}"
    sizes.add_row(
      critical["series"],
      str(critical["length"]),
      critical_size(critical, 1),
      critical_size(critical, critical["labels_per_string"]),
      f"{failed}, {critical['failed_fitted']} fitted" if critical["failed"] else failed,
      ", ".join(counts),
    )
    if critical["labels_per_string"] > 1 and steps["trials"]:
      names = ("step_error", "chain_error", "union_bound")
      values = (interval_text(steps, name) for name in names)
      errors.add_row(critical["series"], str(critical["length"]), *values)
  text = "[95% intervals]; fitted: below 1% of the labels wrong on the sample itself; "
  text += "errors: on other strings, means over trials that succeeded, at their end."
  return [sizes, errors, text] if errors.rows else [sizes, text]


def flatness(summary: dict) -> list[Any]:
  """Norms and traces of learned and constructed weights, and what bounds tell of gaps."""
  table = rich.table.Table(
    "T", "degree", "k", "squared norm\nlearned", "constructed", "trace\nlearned",
    "constructed", "below\nin both",
  )  # fmt: skip
  for cell in summary["cells"]:
    flat = ("squared_norm", "trace")
    kinds = ("learned", "constructed")
    values = [cell[f"{kind}_{name}"] for name in flat for kind in kinds]
    table.add_row(
      str(cell["length"]),
      str(cell["degree"]),
      str(cell["num_components"]),
      *("" if value is None else f"{value:,.4g}" for value in values),
      f"{cell['dominating']} of {cell['trials']}",
    )
  return [table, *_bounds(summary)]


def _bounds(summary: dict) -> list[Any]:
  """A table for each bound, and how it is ranked beside the gap."""
  kinds = ("learned", "constructed")
  first = summary["cells"][0]
  known = [name.removesuffix("_needs") for name in first if name.endswith("_needs")]
  parts: list[Any] = []
  for bound in dict.fromkeys(name.partition("_")[2] for name in known):
    own = [kind for kind in kinds if f"{kind}_{bound}" in known]
    heads = [head for kind in own for head in (kind, "below from n")]
    table = rich.table.Table("T", "degree", "k", *heads, title=bound.replace("_", " "))
    for cell in summary["cells"]:
      values = [cell[f"{kind}_{bound}{end}"] for kind in own for end in ("", "_needs")]
      table.add_row(
        *(str(cell[name]) for name in ("length", "degree", "num_components")),
        *("-" if value is None else f"{value:.3g}" for value in values),
      )
    parts.append(table)
    for kind in own:
      for which, found in summary["correlations"].get(f"{kind}_{bound}", {}).items():
        if "rho" in found:
          which = {"within": "reached, ranked in their cells"}.get(which, which)
          text = f"{kind}, rank correlation with the gap, {which}"
          parts.append(f"{text}: {interval_text(found, 'rho')}")
  text = (
    "Bounds are medians. Below from n: the sample size from which on a bound is below"
  )
  return [*parts, f"{text} the variance of f."]


def growth(summary: dict) -> list[Any]:
  """Powers with which norm and trace of the construction grow."""
  axes = [name for name in summary["trace"] if not name.endswith(("_low", "_high"))]
  table = rich.table.Table("power of", *axes)
  for name, fit in summary.items():
    table.add_row(name, *(interval_text(fit, axis) for axis in axes))
  return [table]


def paired(summary: dict) -> list[Any]:
  """Gap, trace and norm of each cell, and how they differ from the first's."""
  cells = summary["cells"]
  plain = [name for name in cells[0] if name not in ("trials", "reached", "pairs")]
  varied = [
    name
    for name in plain[: plain.index("gap")]
    if len({str(cell[name]) for cell in cells}) > 1
  ]
  names = ("gap", "gap_change", "hessian_trace", "hessian_trace_change", "squared_norm")
  table = rich.table.Table(*varied, "got there", *names, "squared_norm_change")
  table.caption = "changes from the first cell, trial by trial; of trace and norm: ratios"
  for cell in cells:
    table.add_row(
      *(str(cell[name]) for name in varied),
      f"{cell['reached']} of {cell['trials']} ({cell['pairs']} pairs)",
      *(interval_text(cell, name) for name in (*names, "squared_norm_change")),
    )
  return [table]


def tests(summary: dict) -> list[Any]:
  """How often property tests are right, and what sweeps found of each planted level."""
  shares = ("right_planted", "right_within", "false_rejection", "false_acceptance")
  heads = ["tau", "planted\nlevel found", "least within\ntau found", "false\nrejection"]
  heads += ["false\nacceptance", "queries"]
  parts: list[Any] = []
  for kind, name in dict.fromkeys((c["kind"], c["property"]) for c in summary["rates"]):
    rates, levels = (
      [cell for cell in summary[part] if (cell["kind"], cell["property"]) == (kind, name)]
      for part in ("rates", "levels")
    )
    title = f"{name}, {rates[0]['functions']} functions ({kind})"
    table = rich.table.Table(*heads, title=title)
    for cell in rates:
      own = (_stacked(cell, share) for share in shares)
      table.add_row(f"{cell['tau']:g}", *own, _stacked(cell, "queries", ",.0f"))
    places = sorted({cell["planted"] for cell in levels})
    columns = (f"{name} {place}" for place in places)
    found = rich.table.Table("tau", *columns, title="mean of the levels first accepted")
    for tau in sorted({cell["tau"] for cell in levels}):
      by_place = {cell["planted"]: cell for cell in levels if cell["tau"] == tau}
      # A restricted mean is a lower bound: some sweeps accepted nothing.
      own = (
        "> " * by_place[place]["found_restricted"] + _stacked(by_place[place], "found")
        for place in places
      )
      found.add_row(f"{tau:g}", *own)
    parts += [table, found]
  return [*parts, "Below each its 95% interval: Wilson's of shares, Student's of means."]


def _stacked(entry: dict, name: str, form: str = ".2f") -> str:
  """A value with its interval on a line of its own, for tables of many columns."""
  return interval_text(entry, name, form, "\n{}-{}")

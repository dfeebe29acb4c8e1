"""Writes the paper: its text, its numbers and its figures, from recorded rows.

    python -m docs.paper.make

`text.md` names each number; `index.md` and the figures beside it are what comes out. So
are the summaries and figures of its two appendices, whose rows several commands left.
"""

import itertools
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.figure
import numpy as np

from docs.paper import estimates, records, tables
from experiments.qstr.fixed_samples import planted
from sepfx.drawing import best_figures, success_figures
from sepfx.drawing.legends import handle_of, legend_below
from sepfx.drawing.looks import fit_labels, inches, look, points, styles_of
from sepfx.drawing.marks import AT_MOST, BOUND, aside, draw_arrows, line_with_intervals
from sepfx.drawing.ticks import label_logarithmic, label_places

HERE = pathlib.Path(__file__).parent
BEST, FIXED = records.RESULTS / "best_settings", records.RESULTS / "fixed_samples"


def numbers() -> dict[str, Any]:
  """What the text names, by name."""
  best, wide = records.best_settings(), records.batches_of_64()
  fixed, knobs = records.fixed_samples(), records.knobs()
  seed1, sized = records.another_seed(), records.equal()
  half, tenth = estimates.at_best(best, 0.5), estimates.at_best(best, 0.1)
  at64, m = estimates.at_best(wide, 0.5), estimates.critical(fixed)
  growth, growth_tenth = estimates.growths(best, 0.5), estimates.growths(best, 0.1)
  lower = estimates.ratios(tenth, half)
  others = [n[4] for series, n in lower.items() if series != "deep_transformer"]
  return {
    "half": half,
    "tenth": tenth,
    "at64": at64,
    "factor": estimates.factors(half),
    "factor_tenth": estimates.factors(tenth),
    "factor64": estimates.factors(at64),
    "left": estimates.ratios(half, at64),
    "lower": {
      **lower,
      "minimum": min(others, key=_value),
      "maximum": max(others, key=_value),
    },
    "growth": growth,
    "seed1": estimates.at_best(seed1, 0.5),
    "seed1_tenth": estimates.at_best(seed1, 0.1),
    "growth_seed1": estimates.growths(seed1, 0.5),
    "seed_table": tables.seeds(
      (half, estimates.at_best(seed1, 0.5)), (tenth, estimates.at_best(seed1, 0.1))
    ),
    "growth_tenth": growth_tenth,
    "growth64": estimates.growths(wide, 0.5),
    "c_at": estimates.at_settings(best, 0.5),
    "steps_ratio": estimates.steps_ratio(best, 0.5),
    "m": m,
    "m_over": estimates.between(fixed),
    "m_growth": estimates.along(fixed),
    "m_share": estimates.ratios(m, half),
    "m_over_floor": {N: own.value / _floor(N) for N, own in m["ffn"].items()},
    "risk": _risks(((16, 100), (32, 79))),
    "successes": _successes("relu_rnn_8"),
    "best_table": tables.best(best, half, tenth, at64),
    "growth_table": tables.growth(growth),
    "growth_table_tenth": tables.growth(growth_tenth),
    "fixed_table": tables.fixed(m, half),
    "equal": tables.of_size(sized, 0.5),
    "factor_equal": estimates.factors(tables.of_size(sized, 0.5)),
    "equal_table": tables.equal(sized, half),
    "knob": estimates.of_knobs(knobs),
    "knob_table": tables.knobs(knobs),
  }


def _value(own: estimates.Estimate) -> float:
  return own.value


def _floor(N: int) -> float:
  """Theorem 6: below this m no stationary feedforward network has half the risk."""
  return planted.first_layer_floor(N, records.TOKEN_DIM, 0.5 * (1 - 1 / N))


def _risks(places: Sequence[tuple[int, int]]) -> dict[int, dict[str, float]]:
  """The Transformer's mean risk at lengths and sizes, beside the floor 1 - m/(N d)."""
  found = {}
  rows = [
    records.rows_of(records.RESULTS / f"fixed_samples/{name}.csv").table
    for name in ("transformer", "transformer_32")
  ]
  for N, m in places:
    own = [r["risk"][(r["length"] == N) & (r["sample_size"] == m)] for r in rows]
    risk = float(np.mean(np.concatenate(own)))
    found[N] = {"m": m, "mean": risk, "floor": 1 - m / (N * records.TOKEN_DIM)}
  return found


def _successes(name: str) -> dict[int, dict[str, str]]:
  """How many of how many trials of a search succeeded, by the size m."""
  own = records.rows_of(records.RESULTS / f"fixed_samples/{name}.csv").table
  found = {}
  for m in np.unique(own["sample_size"]).tolist():
    outcomes = own["outcome"][own["sample_size"] == m].tolist()
    of_all = f"{outcomes.count('reached')} of {len(outcomes)}"
    found[m] = {"m": f"{m:,}", "trials": of_all}
  return found


def text(named: Mapping[str, Any]) -> str:
  """The paper, its numbers in their places."""
  return (HERE / "text.md").read_text().format_map(named)


def figure_1(named: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """n against N at the best settings, below half and below a tenth; faint, at 64."""
  figure = matplotlib.figure.Figure(figsize=inches(11, 5.4), layout="constrained")
  axes = figure.subplots(1, 2, sharey=True)
  shown = {0.5: named["half"], 0.1: named["tenth"]}
  styles = styles_of(dict.fromkeys(itertools.chain(*shown.values())))
  for axis, (fraction, values) in zip(axes, shown.items(), strict=True):
    places = np.array(sorted({N for own in values.values() for N in own}))
    for k, (series, style) in enumerate(styles.items()):
      shift = aside(places, True, k - (len(styles) - 1) / 2)
      _line(figure, axis, values.get(series, {}), shift, style)
      before = named["at64"].get(series, {})
      known = [
        N for N in before if N in places and before[N].bound != estimates.MORE_THAN
      ]
      if fraction == 0.5:
        axis.plot(shift(known), [before[N].value for N in known], **style, alpha=0.3,
                  linewidth=points(1), markersize=points(4))  # fmt: skip
    axis.set(xscale="log", yscale="log", xlabel="length N")
    axis.set_title(f"fresh prompts, test MSE below {fraction:g} x (1 - 1/N)")
    axis.grid(alpha=0.25)
    label_places(axis.xaxis, places)
  label_logarithmic(axes[0].yaxis)
  axes[0].set_ylabel("training prompts n")
  fit_labels(figure)
  handles = [handle_of(records.NAMES[s], **own, linewidth=2) for s, own in styles.items()]
  handles.append(handle_of("mean and 95% interval", marker="|", markersize=10))
  handles.append(handle_of("at batches of 64", alpha=0.3, linewidth=1))
  bounds = {
    own.bound for v in shown.values() for each in v.values() for own in each.values()
  }
  if estimates.AT_MOST in bounds:
    handles.append(handle_of("upper bound: at an edge of what was tried", **AT_MOST))
  if estimates.MORE_THAN in bounds:
    handles.append(handle_of("lower bound: trials spent their budget", **BOUND))
  legend_below(figure, handles)
  return figure


def figure_2(named: Mapping[str, Any]) -> matplotlib.figure.Figure:
  """m of a fixed sample against N, with n of fresh prompts and floors."""
  figure = matplotlib.figure.Figure(figsize=inches(9, 5), layout="constrained")
  axis = figure.subplots()
  m, half = named["m"], named["half"]
  styles = styles_of(m)
  places = np.array(sorted({N for own in m.values() for N in own}))
  for k, (series, style) in enumerate(styles.items()):
    shift = aside(places, True, k - (len(styles) - 1) / 2)
    _line(figure, axis, m[series], shift, style)
    fresh = {N: own for N, own in half.get(series, {}).items() if N in places}
    axis.plot(shift([*fresh]), [own.value for own in fresh.values()], **style, alpha=0.3,
              linewidth=points(1), markersize=points(4))  # fmt: skip
  axis.plot(places, [_floor(N) for N in places], color="black", linestyle=":", marker=".")
  axis.set(xscale="log", yscale="log", xlabel="length N", ylabel="prompts m")
  axis.set_title("a fixed sample: half of the trials succeed")
  label_places(axis.xaxis, places)
  label_logarithmic(axis.yaxis)
  axis.grid(alpha=0.25)
  fit_labels(figure)
  handles = [handle_of(records.NAMES[s], **own, linewidth=2) for s, own in styles.items()]
  handles += [
    handle_of("n of fresh prompts", alpha=0.3, linewidth=1),
    handle_of("floor of stationary feedforward networks", linestyle=":", marker="."),
  ]
  legend_below(figure, handles)
  return figure


def _line(figure, axis, own: Mapping[int, Any], shift, style) -> None:
  cells = [
    {
      "length": N,
      "mean": e.value,
      "low": None if np.isnan(e.low) else e.low,
      "high": e.high,
      "restricted": e.bound == estimates.MORE_THAN,
      "at_most": False,
    }
    for N, e in own.items()
  ]
  line_with_intervals(figure, axis, cells, "length", shift, style)
  edge = [cell for N, cell in zip(own, cells, strict=True)
          if own[N].bound == estimates.AT_MOST]  # fmt: skip
  x = shift([cell["length"] for cell in edge])
  n = [cell["low"] or cell["mean"] for cell in edge]
  draw_arrows(figure, axis, x, n, AT_MOST, style["color"], points=-18)


def main() -> None:
  named = numbers()
  (HERE / "index.md").write_text(text(named))
  best, fixed = records.best_settings(), records.fixed_samples()
  with look("paper"):
    figures = {
      HERE / "figure_1.png": figure_1(named),
      HERE / "figure_2.png": figure_2(named),
      FIXED / "figure.png": success_figures.success(records.of_fixed_samples(), fixed),
    }
    for path, figure in figures.items():
      figure.savefig(path)
  with look():
    best_figures.best_rates(best).savefig(BEST / "figure.png")
  for folder, summary in ((BEST, best), (FIXED, fixed)):
    (folder / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
  main()

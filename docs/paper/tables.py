"""Tables of the paper, as lines of Markdown."""

from collections.abc import Mapping, Sequence
from typing import Any

from docs.paper.estimates import ByLength, Estimate, at_best, factors
from docs.paper.records import NAMES, TOKEN_DIM
from experiments.qstr.fixed_samples import planted


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
  """A table; a name that stands in the row above is not repeated."""
  lines = [head, ["---"] * len(head)]
  name = None
  for first, *others in rows:
    lines.append(["" if first == name else first, *others])
    name = first
  written = [f"| {' | '.join(map(str, line))} |".replace("  ", " ") for line in lines]
  return "\n".join(written)


def best(
  summary: Mapping[str, Any], half: ByLength, tenth: ByLength, at64: ByLength
) -> str:
  """n at each architecture's best settings, and what it is beside others."""
  over = factors(half)
  rows = []
  for e in summary["best"]:
    series, N = e["series"], e["length"]
    own = half.get(series, {}).get(N)
    if e["fraction"] != 0.5 or own is None:
      continue
    factor = over.get(series, {}).get(N)
    before = at64.get(series, {}).get(N)
    lower = tenth.get(series, {}).get(N)
    setting = f"{e['batch_size']:g}, {e['learning_rate']:g}"
    rows.append(
      [NAMES[series], N, setting, _marked(own), f"{factor:i}" if factor else "",
       f"{before:i}" if before else "", _marked(lower) if lower else ""]
    )  # fmt: skip
  head = ["model", "N", "batch, rate", "n", "over the Transformer's",
          "n at batches of 64", "n below a tenth"]  # fmt: skip
  return table(head, rows)


def _marked(n: Estimate) -> str:
  """With a mark where a mean is of trials of which some are slow."""
  return f"{n:i}" + " *" * (n.slow > 0)


def growth(own: Mapping[str, Mapping[str, Any]]) -> str:
  """How n grows, of those with three lengths or more."""
  rows = []
  for series, g in own.items():
    if g["laws"]:
      laws, span = g["laws"], f"{g['first']:g} to {g['last']:g}"
      rows.append(
        [NAMES[series], span, f"{g['factor']:i}", f"{g['c']:.2fi}",
         f"{laws['p_power']:.2g}", f"{laws['p_logarithm']:.2g}",
         f"{laws['advantage']:+.1f}"]
      )  # fmt: skip
  head = ["model", "N", "n at the last over n at the first", "c of n ~ N^c",
          "p of a power", "p of a logarithm", "advantage of the logarithm"]  # fmt: skip
  return table(head, rows)


def fixed(m: ByLength, fresh: ByLength) -> str:
  """m at which half of the trials succeed, beside what bounds it."""
  rows = []
  for series, values in m.items():
    for N, own in values.items():
      threshold = 0.5 * (1 - 1 / N)
      knows = planted.planted_size("knows_index", N, TOKEN_DIM, threshold).size
      layer = planted.first_layer_floor(N, TOKEN_DIM, threshold)
      online = fresh.get(series, {}).get(N)
      rows.append([NAMES[series], N, f"{own:i}", f"{online}" if online else "",
                   knows, f"{layer:g}"])  # fmt: skip
  head = ["model", "N", "m", "n of fresh prompts", "least squares, index known",
          "floor of Theorem 6"]  # fmt: skip
  return table(head, rows)


def seeds(half: tuple[ByLength, ByLength], tenth: tuple[ByLength, ByLength]) -> str:
  """n of two seeds side by side, where both are there."""
  rows = []
  for series, values in half[1].items():
    for N in values:
      cells = [_marked(own[series][N]) for own in (*half, *tenth)]
      rows.append([NAMES[series], N, *cells])
  head = ["model", "N", "n, seed 0", "n, seed 1", "below a tenth, seed 0", "seed 1"]
  return table(head, rows)


def equal(found: Sequence[tuple[Mapping[str, Any], int]], half: ByLength) -> str:
  """n of models of one size at one length, beside those of their own widths."""
  own = of_size(found, 0.5)
  tenth, over, published = of_size(found, 0.1), factors(own), factors(half)
  rows = []
  for summary, number in found:
    (e, *_) = summary["best"]
    series, N = e["series"], e["length"]
    n, factor = own[series][N], over.get(series, {}).get(N)
    usual = half.get(series, {}).get(N)
    wider = n.over(usual) if usual else None
    rows.append(
      [NAMES[series], f"{number:,}", f"{e['batch_size']:g}, {e['learning_rate']:g}",
       _marked(n), f"{factor:i}" if factor else "",
       f"{published[series][N]}" if usual and factor else "",
       f"{wider:i}" if wider else "", _marked(tenth[series][N])]
    )  # fmt: skip
  head = ["model", "parameters", "batch, rate", "n", "over the Transformer's",
          "at its own width", "n over n of its own width", "n below a tenth"]  # fmt: skip
  return table(head, rows)


def of_size(
  found: Sequence[tuple[Mapping[str, Any], int]], fraction: float
) -> dict[str, dict]:
  """n of models of one size, by series, then by length."""
  return {s: n for summary, _ in found for s, n in at_best(summary, fraction).items()}


KNOBS = {
  "optimizer=adam": "no weight decay",
  "weight_decay=0.1": "weight decay 0.1",
  "weight_decay=1": "weight decay 1",
  "optimizer=adam:b2=0.99": "beta_2 0.99, no decay",
  "optimizer=adam:b2=0.95": "beta_2 0.95, no decay",
  "optimizer=adamw:clip_norm=1": "clipped at a norm of 1",
  "optimizer=adamw:clip_norm=0.1": "clipped at 0.1",
  "optimizer=adamw:warmup_steps=20": "warm-up over 20 steps",
}


def knobs(summaries: Sequence[Mapping[str, Any]]) -> str:
  """n of one model at one length as its knobs are turned, one at a time."""
  names = {"weight_decay=0.01": "weight decay 0.01", **KNOBS}
  found: dict[str, list[str]] = {}
  for summary in summaries:
    both = [at_best(summary, fraction) for fraction in (0.5, 0.1)]
    for e in summary["best"]:
      own = both[e["fraction"] == 0.1].get(e["series"], {}).get(e["length"])
      ended = f"{e['reached']} of {e['trials']} trials within {e['budget']:,}"
      cells = found.setdefault(e["series"].partition(", ")[2], [])
      cells.append(f"{own:i}" if own else ended)
  return table(["knob", "n", "n below a tenth"],
               [[name, *found[knob]] for knob, name in names.items()])  # fmt: skip

"""The page of the map: a table per device, a cell per place, coloured by the winner."""

from html import escape
from math import inf

import numpy as np

from semistream.lab.charts import short, style_of
from semistream.lab.claims import Row, Table, Value, number

_NOTED = 0.02  # regret below this is not told


def map_page(table: Table, rows: int) -> str:
    """Return the whole page."""
    devices = "".join(
        _device(str(name), table.where(device=name)) for name in table.distinct("device")
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Semistream: which algorithm wins where</title>
<style>{_CSS}</style>
</head>
<body>
<h1>Which algorithm wins where</h1>
<p>R of {rows:,} rows of 120 bytes, S of 20 bytes, two columns added, every row counted. A cell
names the fastest algorithm that was measured, each with its best split, and its tuples per second.
A tick (✓) marks that the cost model chooses it; otherwise the model’s choice follows, with how much
slower it is.</p>
<p><b>{escape(regret_told(table))}</b></p>
<ul class="legend">{_legend(table)}</ul>
{devices}
<footer>Made by <code>semistream lab map</code>; all rates are in <code>map.csv</code>.</footer>
</body>
</html>
"""


def regret_told(table: Table) -> str:
    """Return how good the model's choices are, in a sentence."""
    regrets = [float(row["regret"]) for row in table if row["is_chosen"]]
    hits = sum(regret == 0 for regret in regrets)
    return (
        f"The model chooses the fastest in {hits} of {len(regrets)} places; its choice is slower "
        f"by {np.mean(regrets):.1%} on average, {np.quantile(regrets, 0.9):.0%} or less in nine of "
        f"ten, and {max(regrets):.0%} at worst."
    )


def _legend(table: Table) -> str:
    winners = dict.fromkeys(str(row["algorithm"]) for row in table if row["is_fastest"])
    return "".join(
        f'<li><i style="background:{style_of(name).colour}"></i>{escape(style_of(name).label)}</li>'
        for name in winners
    )


def _device(name: str, here: Table) -> str:
    exponents = here.distinct("exponent")
    head = "".join(f'<th scope="col">{_skew(e)}</th>' for e in exponents)
    lines = []
    for batch in here.distinct("batch_per_row"):
        of_batch = here.where(batch_per_row=batch)
        shares = of_batch.distinct("memory_percent")
        for i, share in enumerate(shares):
            first = f'<th scope="rowgroup" rowspan="{len(shares)}">{_batch(batch)}</th>'
            cells = "".join(
                _cell(of_batch.where(memory_percent=share, exponent=exponent))
                for exponent in exponents
            )
            memory = f'<th scope="row">{float(share):g} % of R</th>'
            lines.append(f"<tr>{first if i == 0 else ''}{memory}{cells}</tr>")
    return f"""<section><h2>{escape(_titled(name))}</h2>
<p>{escape(regret_told(here))}</p>
<div class="wide"><table><thead><tr><th scope="col">micro-batch</th><th scope="col">memory</th>
{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div></section>
"""


def _titled(device: str) -> str:
    if device == "real":
        return "This machine: measured, R in the page cache"
    return f"{device}: emulated"


def _skew(exponent: Value) -> str:
    return "uniform keys" if not exponent else f"Zipf {float(exponent):g}"


def _batch(batch: Value) -> str:
    size = float(batch)
    return "a stream without end" if size == inf else f"{size:g} × R’s rows"


def _cell(here: Table) -> str:
    rows = list(here)
    if not rows:
        return "<td>–</td>"
    best = max(rows, key=lambda row: float(row["tuples_per_s"]))
    chosen = next(row for row in rows if row["is_chosen"])
    style = style_of(str(best["algorithm"]))
    rate = short(float(f"{number(best, 'tuples_per_s'):.2g}"))
    return (
        f'<td style="--tint:{style.colour}"><b>{escape(style.label)}</b>'
        f"<span>{rate}/s{_choice(best, chosen)}</span></td>"
    )


def _choice(best: Row, chosen: Row) -> str:
    if best is chosen:
        return " ✓"
    regret = float(chosen["regret"])
    label = escape(style_of(str(chosen["algorithm"])).label)
    told = "as good" if regret < _NOTED else f"−{regret:.0%}"
    return f"<em>model: {label}, {told}</em>"


_CSS = """
* { box-sizing: border-box; margin: 0; padding: 0; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1rem; background: #f6f6f3; color: #1d2126;
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 2rem; } h2 { margin-top: 2rem; font-size: 1.3rem; }
p { max-width: 50rem; margin-top: .6rem; }
h2 + p { margin: .2rem 0 .8rem; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin-top: 1rem; list-style: none;
  font-size: .85rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem;
  border-radius: .2rem; vertical-align: -.05rem; }
.wide { overflow-x: auto; }
table { width: 100%; min-width: 44rem; border-collapse: separate; border-spacing: 3px;
  font-size: .82rem; line-height: 1.3; }
th { padding: .3rem .5rem; color: #626a73; font-weight: 500; text-align: left;
  vertical-align: top; }
td { padding: .4rem .55rem; border-left: .35rem solid var(--tint, #ccc); border-radius: .25rem;
  background: color-mix(in srgb, var(--tint, #ccc) 14%, white); vertical-align: top; }
td b, td span, td em { display: block; } td em { color: #b4530b; font-style: normal; }
footer { margin-top: 2rem; color: #626a73; font-size: .85rem; }
"""

"""One page of all figures: charts, claims, verdicts, and where they were made.

The page is one file that can be mailed: style and pictures are in it, and it needs no script.
Settings that all figures share, such as the device, are at its top; others are with each figure.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from semistream.errors import OptionError
from semistream.lab.claims import Verdict
from semistream.lab.runner import Judged, Result, claims_of, counts_of, score

REPORT = "index.html"
Shared: TypeAlias = Mapping[str, str | None]  # settings that all figures share; None if they differ


@dataclass(frozen=True, slots=True)
class Paper:
    """The source of figures; without a title they are our own."""

    name: str
    title: str = ""
    published: str = ""


PAPERS: Mapping[str, Paper] = {
    "meshjoin": Paper(
        "MESHJOIN (Polyzotis et al.)",
        "Supporting Streaming Updates in an Active Data Warehouse",
        "ICDE 2007",
    ),
    "meshjoin-default-settings": Paper(
        "MESHJOIN’s default settings (Naeem et al.)",
        "Comparing Global Optimization and Default Settings of Stream-based Joins",
        "BIRTE 2009",
    ),
    "hybridjoin": Paper(
        "HYBRIDJOIN (Naeem et al.)",
        "HYBRIDJOIN for Near-real-time Data Warehousing",
        "technical report UoA-SE-2010-2, University of Auckland, 2010",
    ),
    "xhybridjoin": Paper(
        "X-HYBRIDJOIN (Naeem et al.)",
        "Efficient processing of streaming updates with archived master data in near-real-time "
        "data warehousing",
        "Knowledge and Information Systems, 2013",
    ),
    "cmeshjoin": Paper(
        "CMESHJOIN, the cache front stage (Naeem et al.)",
        "A Generic Front-Stage for Semi-Stream Processing",
        "CIKM 2013",
    ),
    "beyond": Paper("Beyond the papers"),
}
MEANINGS: Mapping[Verdict, str] = {
    Verdict.HOLDS: "The paper’s statement is true here too, its numbers within 25 %.",
    Verdict.IN_SHAPE: "The order is the same and numbers are within a factor of 2.",
    Verdict.NOT_HERE: "Neither is the same; the reason is given where it is known.",
    Verdict.NOT_JUDGED: "It is about data that this run did not have.",
}
_MINIATURE = """At quick scale figures are made <strong>in miniature</strong>: R, the memory budget
and the fixed cost of a disk request are all N times smaller than in the paper. A loop then takes
1/N of the time for 1/N of the tuples, so rates are those of the full size; times are multiplied by
N, and sizes are given as at full size. Keys are drawn at full size, and N neighbours in rank share
one row, so a share of R has the same share of a skewed stream as at full size. Bars are confidence
intervals of 95 % over the seeds; the least favourable verdict of any seed counts."""
_SCALES = {"quick": "quick: in miniature", "paper": "paper: the full size"}
_CLASSES = {
    Verdict.HOLDS: "yes",
    Verdict.IN_SHAPE: "shape",
    Verdict.NOT_HERE: "no",
    Verdict.NOT_JUDGED: "open",
}


def write_report(results: Sequence[Result], out: Path, order: Sequence[str]) -> Path:
    """Write the page and return its path; figures not in `order` come last."""
    results = in_order(results, order)
    papers: dict[str, list[Result]] = {}
    for result in results:
        papers.setdefault(result.paper, []).append(result)
    shared = _shared([_settings(result) for result in results])
    path = out / REPORT
    path.write_text(
        f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Semistream lab: the papers’ figures, made again</title>
<style>{_CSS}</style>
</head>
<body>
{_head(results, shared)}
<nav id="contents">
<h2>Contents</h2>
<p class="quiet">A dot is the least favourable verdict on a figure’s claims.</p>
<div class="columns">{"".join(_contents(*paper) for paper in papers.items())}</div>
</nav>
<main>{"".join(_section(*paper, out, shared) for paper in papers.items())}</main>
<footer>Any figure can be made again: <code>semistream lab run NAME</code>.</footer>
</body>
</html>
""",
        encoding="utf-8",
    )
    return path


def in_order(results: Sequence[Result], order: Sequence[str]) -> list[Result]:
    """Return figures in the order of their names in `order`; others come last."""
    places = {name: place for place, name in enumerate(order)}
    return sorted(results, key=lambda r: (places.get(r.name, len(places)), r.name))


def _settings(result: Result) -> dict[str, str]:
    return {
        "Device": result.device,
        "Scale": _SCALES.get(result.scale, result.scale),
        "Machine": result.machine,
        "Seeds": f"seed{'s' * (len(result.seeds) > 1)} {', '.join(map(str, result.seeds))}",
        "Version": f"Semistream {result.version}",
    }


def _shared(settings: Sequence[Mapping[str, str]]) -> Shared:
    first = settings[0]
    return {n: text if all(s[n] == text for s in settings) else None for n, text in first.items()}


def _most_common(texts: Sequence[str]) -> str:
    return Counter(texts).most_common(1)[0][0]


def _head(results: Sequence[Result], shared: Shared) -> str:
    claims, ours = claims_of(results), claims_of(results, ours=True)
    days = sorted(result.made_at[:10] for result in results)
    made = " to ".join(dict.fromkeys((days[0], days[-1])))
    minutes = sum(result.seconds for result in results) / 60
    settings = [_settings(result) for result in results]
    facts = {
        name: text
        or f"{_most_common([s[name] for s in settings])}; exceptions are noted with the figure"
        for name, text in shared.items()
    }
    facts["Made"] = f"{len(results)} figures, {made}, in {minutes:.1f} min"
    rows = "".join(f"<div><dt>{n}</dt><dd>{escape(text)}</dd></div>" for n, text in facts.items())
    verdicts = "".join(
        f'<li class="{_CLASSES[verdict]}"><b>{count}</b> of {len(claims)} '
        f"{_label(verdict)}<p>{MEANINGS[verdict]}</p></li>"
        for verdict, count in counts_of(claims).items()
    )
    own = f"<p>Our own claims, counted apart: {score(ours)}.</p>" if ours else ""
    return f"""<header>
<p class="quiet">Semistream lab</p>
<h1>The papers’ figures, made again</h1>
<p class="lede">The figures of the papers that Semistream’s joins come from, measured here, each
with the paper’s claims about it and whether they hold here too.</p>
{_bar(claims)}
<ul class="verdicts">{verdicts}</ul>
{own}
<dl>{rows}</dl>
<p class="miniature">{_MINIATURE}</p>
</header>"""


def _contents(paper: str, figures: Sequence[Result]) -> str:
    items = "".join(
        f'<li>{_dot(figure)}<a href="#{escape(figure.name)}">'
        f"<b>{escape(figure.number)}</b> <span>{escape(figure.title)}</span></a></li>"
        for figure in figures
    )
    name = escape(_paper(paper).name)
    return f'<div><h3><a href="#paper-{escape(paper)}">{name}</a></h3><ul>{items}</ul></div>'


def _section(key: str, figures: Sequence[Result], out: Path, shared: Shared) -> str:
    paper = _paper(key)
    claims = claims_of(figures) or claims_of(figures, ours=True)
    source = f"<p><cite>{escape(paper.title)}</cite>, {escape(paper.published)}</p>"
    return f"""<section id="paper-{escape(key)}">
<div class="paper"><h2>{escape(paper.name)}</h2>
{source if paper.title else ""}
{_bar(claims)}<p class="quiet">{_tally(claims)}</p></div>
{"".join(_article(figure, out, shared) for figure in figures)}</section>
"""


def _article(figure: Result, out: Path, shared: Shared) -> str:
    is_paper = bool(_paper(figure.paper).title)
    differs = [text for name, text in _settings(figure).items() if shared[name] is None]
    made = " · ".join(escape(text) for text in [*differs, f"made in {figure.seconds:.0f} s"])
    is_theirs = is_paper and figure.number[0].isdigit()
    label = f"Figure {figure.number}" if is_theirs else figure.number
    aside = "<b>Note: </b>" if is_paper else ""
    note = f'<p class="note">{aside}{escape(figure.note)}</p>' if figure.note else ""
    return f"""<article id="{escape(figure.name)}">
<h3><span>{escape(label)}</span> {escape(figure.title)}</h3>
<div class="chart" tabindex="0">
<img src="{_picture(figure, out)}" alt="{escape(f"Chart: {figure.title}")}"></div>
{note}
{_table(figure.claims, "The paper says" if is_theirs else "Claim")}
<p class="made"><code>{escape(figure.name)}</code> · {made} ·
<a href="{quote(figure.name)}.csv">data (CSV)</a> · <a href="#contents">contents</a></p>
</article>
"""


def _picture(figure: Result, out: Path) -> str:
    path = out / f"{figure.name}.svg"
    if not path.exists():
        raise OptionError(
            f"figure {figure.name!r} has verdicts in {out}, but its picture {path.name} is "
            f"missing; make it again: semistream lab run {figure.name} --out {out}"
        )
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _table(claims: Sequence[Judged], says: str) -> str:
    if not claims:
        return ""
    columns = "".join(f'<th scope="col">{name}</th>' for name in (says, "Here it", "Found"))
    rows = "".join(_row(claim) for claim in claims)
    return f"<table><thead><tr>{columns}</tr></thead>\n<tbody>{rows}</tbody></table>"


def _row(claim: Judged) -> str:
    why = f'<p class="why"><b>Why: </b>{escape(claim.why)}</p>' if claim.why else ""
    return f"""<tr><td>{escape(claim.says)} <span class="source">{escape(claim.source)}</span></td>
<td>{_label(Verdict(claim.verdict))}</td><td>{escape(claim.number)}{why}</td></tr>
"""


def _label(verdict: Verdict) -> str:
    return f'<span class="label {_CLASSES[verdict]}">{verdict.value}</span>'


def _dot(figure: Result) -> str:
    found = [verdict for verdict, count in counts_of(figure.claims).items() if count]
    kind, text = (_CLASSES[found[-1]], found[-1].value) if found else ("none", "no claims")
    return f'<i class="dot {kind}" role="img" aria-label="{text}" title="{text}"></i>'


def _bar(claims: Sequence[Judged]) -> str:
    parts = "".join(
        f'<i class="{_CLASSES[verdict]}" style="flex:{count}"></i>'
        for verdict, count in counts_of(claims).items()
        if count
    )
    return f'<div class="bar" role="img" aria-label="{_tally(claims)}">{parts}</div>'


def _tally(claims: Sequence[Judged]) -> str:
    counts = ", ".join(f"{v.value}: {count}" for v, count in counts_of(claims).items() if count)
    total = "1 claim" if len(claims) == 1 else f"{len(claims)} claims"
    return f"{total}; {counts}" if claims else "no claims"


def _paper(name: str) -> Paper:
    return PAPERS.get(name, Paper(name))


_CSS = """
:root { --page: #f6f6f3; --card: #fff; --ink: #1d2126; --quiet: #626a73; --line: #e2e2dc;
  --yes: #1a7f4b; --shape: #2468b0; --no: #b4530b; --blend: multiply; --flip: none; }
@media (prefers-color-scheme: dark) { :root { --page: #121417; --card: #1a1d21; --ink: #e4e6e8;
  --quiet: #98a1aa; --line: #2f343a; --yes: #4cc38a; --shape: #6cb0f5; --no: #f0934a;
  --blend: screen; --flip: invert(1) hue-rotate(180deg); } }
.yes { --tint: var(--yes); } .shape { --tint: var(--shape); } .no { --tint: var(--no); }
.open { --tint: var(--quiet); }
* { box-sizing: border-box; margin: 0; padding: 0; }
body { margin: 0 auto; max-width: 62rem; padding: 3rem 1.5rem; background: var(--page);
  color: var(--ink); font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1, h2, h3 { margin-bottom: .3rem; line-height: 1.2; text-wrap: balance; letter-spacing: -.01em; }
h1 { font-size: clamp(1.9rem, 5vw, 2.75rem); } h2 { font-size: 1.6rem; }
a { color: var(--shape); text-underline-offset: .15em; }
code { font-family: ui-monospace, Menlo, Consolas, monospace; }
.quiet, .note, .why, .source, .made, dt, th, footer { color: var(--quiet); font-size: .85rem; }
.lede { margin: .75rem 0 1.75rem; max-width: 44rem; font-size: 1.125rem; }
.bar { display: flex; gap: 2px; height: .75rem; border-radius: 1rem; overflow: hidden; }
.bar i { background: var(--tint); }
.verdicts, dl { display: grid; grid-template-columns: repeat(4, 1fr); gap: 1rem 1.5rem;
  font-size: .9rem; line-height: 1.45; list-style: none; }
.verdicts { margin: 1rem 0 2rem; color: var(--quiet); }
.verdicts b { color: var(--tint); font-size: 2.25rem; line-height: 1.3; }
.label { display: inline-block; padding: .1rem .6rem; border-radius: 1rem; color: var(--tint);
  background: color-mix(in srgb, var(--tint) 13%, transparent);
  font-size: .8rem; font-weight: 600; white-space: nowrap; }
dl { padding: 1.25rem 0; border: solid var(--line); border-width: 1px 0; }
.miniature { margin-top: 1.25rem; max-width: 50rem; color: var(--quiet); font-size: .9rem; }
nav { margin-top: 3rem; }
.columns { columns: 24rem 2; column-gap: 2.5rem; margin-top: 1rem; }
.columns > div { break-inside: avoid; padding-bottom: 1.5rem; }
nav h3 { font-size: 1rem; }
nav a { color: inherit; text-decoration: none; } nav a:hover { text-decoration: underline; }
nav li, nav li a { display: flex; gap: .6rem; font-size: .875rem; line-height: 1.4; }
nav li { padding: .15rem 0; }
nav li b { flex: none; min-width: 1.9rem; color: var(--quiet); font-weight: 600; }
.dot { flex: none; width: .7rem; height: .7rem; margin-top: .27rem; border-radius: 50%;
  border: 2px solid var(--tint, var(--line)); }
.dot.yes { background: var(--tint); }
.dot.shape { background: linear-gradient(90deg, var(--tint) 50%, transparent 50%); }
section { margin-top: 3.5rem; }
.paper { margin-bottom: 1.5rem; }
.paper .bar { height: .35rem; max-width: 18rem; margin: .9rem 0 .35rem; }
article { margin-bottom: 1.5rem; padding: 1.75rem 2rem 1.25rem; border: 1px solid var(--line);
  border-radius: .75rem; background: var(--card); scroll-margin-top: 1rem; break-inside: avoid; }
article h3 span { display: block; margin-bottom: .2rem; color: var(--quiet); font-size: .875rem; }
img { display: block; width: 100%; max-width: 46rem; margin: 1.25rem auto;
  mix-blend-mode: var(--blend); filter: var(--flip); }
.note { margin-bottom: 1.25rem; padding-left: .9rem; border-left: 3px solid var(--line); }
table { width: 100%; border-collapse: collapse; table-layout: fixed; font-size: .9375rem;
  line-height: 1.45; }
th { padding-bottom: .4rem; font-weight: 500; text-align: left; }
th:nth-child(1) { width: 40%; } th:nth-child(2) { width: 11rem; }
td { padding: .75rem 1.25rem .75rem 0; border-top: 1px solid var(--line); vertical-align: top; }
.source { display: block; } .why { margin-top: .4rem; }
.made { padding-top: .75rem; border-top: 1px solid var(--line); } .made a { white-space: nowrap; }
@media (max-width: 44rem) {
  body { padding: 1.75rem 1rem; }
  .verdicts { grid-template-columns: 1fr; } dl { grid-template-columns: 1fr 1fr; }
  article { margin-inline: -.5rem; padding: 1.25rem 1rem 1rem; }
  .chart { margin-inline: -.75rem; overflow-x: auto; }
  img { width: 36rem; max-width: none; }  /* smaller, its text could not be read */
  thead { display: none; } table, tbody, tr, td { display: block; }
  td { padding: 0 0 .45rem; border: 0; }
  tr { padding: .85rem 0 .4rem; border-top: 1px solid var(--line); }
}
"""

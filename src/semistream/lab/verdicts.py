"""The verdicts of a run as Markdown: the score of each paper, and what does not hold, with reasons.

The tables in docs/lab.md are taken from it.
"""

from collections.abc import Sequence
from pathlib import Path

from semistream.lab.claims import Verdict
from semistream.lab.report import PAPERS, in_order
from semistream.lab.runner import Judged, Result, claims_of, counts_of

VERDICTS = "verdicts.md"
_SHORT = {
    Verdict.HOLDS: "holds",
    Verdict.IN_SHAPE: "in shape",
    Verdict.NOT_HERE: "not",
    Verdict.NOT_JUDGED: "not judged",
}


def write_verdicts(results: Sequence[Result], out: Path, order: Sequence[str]) -> Path:
    """Write the tables and return their path; figures not in `order` come last."""
    path = out / VERDICTS
    path.write_text(verdicts_text(in_order(results, order)), encoding="utf-8")
    return path


def verdicts_text(results: Sequence[Result]) -> str:
    """Return both tables; our own claims are the last row of the first one."""
    papers: dict[str, list[Result]] = {}
    for result in results:
        papers.setdefault(result.paper, []).append(result)
    scores = [(PAPERS[name].name, claims_of(some)) for name, some in papers.items()]
    scores = [(name, claims) for name, claims in scores if claims]
    scores += [("all papers", claims_of(results)), ("our own", claims_of(results, ours=True))]
    lines = [_row("paper", "claims", *_SHORT.values()), _row("---", *["---:"] * 5)]
    lines += [_row(name, len(claims), *counts_of(claims).values()) for name, claims in scores]
    lines += ["", _row("figure", "claim", "verdict", "here", "why"), _row(*["---"] * 5)]
    lines += [_told(r.name, claim) for r in results for claim in r.claims if _is_told(claim)]
    return "\n".join(lines) + "\n"


def _is_told(claim: Judged) -> bool:
    return claim.verdict != Verdict.HOLDS


def _told(name: str, claim: Judged) -> str:
    verdict = _SHORT[Verdict(claim.verdict)]
    return _row(name, claim.says, verdict, claim.number, claim.why)


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"

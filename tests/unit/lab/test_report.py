import base64
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest

from semistream.errors import OptionError
from semistream.lab.catalogue import FIGURES
from semistream.lab.claims import Verdict
from semistream.lab.report import PAPERS, write_report
from semistream.lab.runner import Judged, Result

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><circle id="c" r="{}"/></svg>'
VOID = {"meta", "img", "br", "hr"}

KNEE = Result(
    name="meshjoin-5b",
    paper="meshjoin",
    number="5b",
    title='The <b>rate</b> & the "memory" it\'s given',
    note="Nothing is measured: equations <1> & 3.",
    device="hdd-papers, emulated: only its own clock counts, computing takes no time",
    scale="quick",
    seeds=(7, 8, 9),
    seconds=12.3,
    made_at="2026-11-16T06:46:16+00:00",
    machine="x86_64, 2 cores, Python 3.11.7",
    version="0.1.0",
    claims=(
        Judged("It rises & falls.", "section 3.2", Verdict.HOLDS, "most at 0.9 < 1 MB", ""),
        Judged("By 10 times.", 'figure 5("b")', Verdict.IN_SHAPE, "8 times", "Here w > 1 & b < 2."),
    ),
)
SKEW = replace(
    KNEE,
    name="hybridjoin-3",
    paper="hybridjoin",
    number="3",
    title="How often pages are requested",
    note="",
    claims=(
        Judged("Less and less.", "section 3", Verdict.NOT_HERE, "232 to 240", "A <i>RAID</i>."),
    ),
)
OURS = replace(
    KNEE, name="beyond-drift", paper="beyond", number="drift", title="Drift", note="", claims=()
)
ORDER = [KNEE.name, SKEW.name, OURS.name]


class Page(HTMLParser):
    """All texts, and all starting tags; tags that are not closed in order fail."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def all(self, name: str, attribute: str) -> list[str]:
        return [
            attrs[attribute] or "" for tag, attrs in self.tags if tag == name and attribute in attrs
        ]


def _write(results: list[Result], out: Path) -> tuple[str, Page]:
    for place, result in enumerate(results):
        (out / f"{result.name}.svg").write_text(SVG.format(place))
    html = write_report(results, out, ORDER).read_text(encoding="utf-8")
    return html, Page(html)


def test_all_that_was_found_is_there_and_escaped(tmp_path: Path) -> None:
    html, page = _write([KNEE, SKEW, OURS], tmp_path)
    for result in (KNEE, SKEW, OURS):
        said = [text for c in result.claims for text in (c.says, c.source, c.number, c.why)]
        for text in (result.title, result.note, *said):
            assert text in page.text
            assert escape(text) in html
    assert f"Chart: {KNEE.title}" in page.all("img", "alt")
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "base", "iframe")]
    assert "<i>RAID" not in html
    assert "https:" not in html


def test_seeds_that_differ_are_said_with_the_figure(tmp_path: Path) -> None:
    _, page = _write([KNEE, OURS, replace(SKEW, seeds=(7,))], tmp_path)
    assert "seeds 7, 8, 9; exceptions are noted with the figure" in page.text
    assert "· seed 7 ·" in page.text


def test_figures_are_grouped_by_paper_in_the_order_of_the_catalogue(tmp_path: Path) -> None:
    old = replace(KNEE, name="meshjoin-1")  # no longer in the catalogue: the last of its paper
    _, page = _write([old, OURS, SKEW, KNEE], tmp_path)
    names = [KNEE.name, old.name, SKEW.name, OURS.name]
    assert page.all("article", "id") == names
    sections = ["paper-meshjoin", "paper-hybridjoin", "paper-beyond"]
    assert page.all("section", "id") == sections
    links = [link.removeprefix("#") for link in page.all("a", "href")]
    assert [link for link in links if link in names] == names
    assert [link for link in links if link in sections] == sections
    assert [link for link in links if link.endswith(".csv")] == [f"{name}.csv" for name in names]


def test_verdicts_are_counted_and_a_dot_is_the_least_favourable(tmp_path: Path) -> None:
    twice = replace(KNEE, name="meshjoin-6a", claims=KNEE.claims[:1])
    _, page = _write([KNEE, twice, SKEW, OURS], tmp_path)
    assert "2 of 4 holds" in page.text
    assert "1 of 4 holds in shape" in page.text
    assert "1 of 4 does not hold here" in page.text
    assert page.all("div", "aria-label") == [
        "4 claims; holds: 2, holds in shape: 1, does not hold here: 1",
        "3 claims; holds: 2, holds in shape: 1",
        "1 claim; does not hold here: 1",
        "no claims",
    ]
    dots = ["holds in shape", "holds", "does not hold here", "no claims"]
    assert page.all("i", "aria-label") == dots
    labels = [
        kind
        for tag, attrs in page.tags
        if tag == "span" and (kind := attrs.get("class") or "").startswith("label")
    ]
    in_the_head = ["label yes", "label shape", "label no", "label open"]
    assert labels == [*in_the_head, "label yes", "label shape", "label yes", "label no"]


def test_our_own_claims_are_counted_apart(tmp_path: Path) -> None:
    own = replace(OURS, claims=(Judged("It wins.", "ours", Verdict.NOT_HERE, "1 of 9", ""),))
    beside = replace(own, name="meshjoin-seek", paper="meshjoin")
    _, page = _write([KNEE, beside, own], tmp_path)
    told = "2 claims; holds: 1, holds in shape: 1"
    assert page.all("div", "aria-label") == [told, told, "1 claim; does not hold here: 1"]
    assert "1 of 2 holds" in page.text
    assert "0 of 2 does not hold here" in page.text
    assert "counted apart: 0 hold / 0 in shape / 2 do not / 0 not judged" in page.text


def test_pictures_are_in_the_page(tmp_path: Path) -> None:
    _, page = _write([KNEE, SKEW], tmp_path)
    pictures = [source.partition("base64,") for source in page.all("img", "src")]
    assert {kind for kind, _, _ in pictures} == {"data:image/svg+xml;"}
    assert [base64.b64decode(data).decode() for _, _, data in pictures] == [
        SVG.format(0),
        SVG.format(1),
    ]


def test_a_picture_that_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"meshjoin-5b\.svg is missing.*lab run meshjoin-5b"):
        write_report([KNEE], tmp_path, ORDER)


def test_what_all_figures_share_is_told_once_and_what_differs_with_each(tmp_path: Path) -> None:
    real = replace(SKEW, device="this machine's own", scale="paper", made_at="2026-12-01T00:00:00")
    _, alike = _write([KNEE, SKEW], tmp_path)
    _, mixed = _write([KNEE, real], tmp_path)
    for told in (KNEE.device, "quick: in miniature", KNEE.machine, "Semistream 0.1.0"):
        assert alike.text.count(told) == 1
    assert "2 figures, 2026-11-16, in 0.4 min" in alike.text
    assert "2 figures, 2026-11-16 to 2026-12-01" in mixed.text
    assert mixed.text.count("exceptions are noted with the figure") == 2
    assert f"{KNEE.name} · {KNEE.device} · quick: in miniature · made in 12 s" in mixed.text
    assert f"{real.name} · {real.device} · paper: the full size · made in 12 s" in mixed.text
    assert mixed.text.count(KNEE.machine) == 1


def test_every_paper_of_the_catalogue_has_a_name() -> None:
    assert {figure.paper for figure in FIGURES.values()} <= set(PAPERS)

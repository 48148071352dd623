"""Report and terminal, from invented figures."""

from __future__ import annotations

import io
import re
from array import array
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from rich.console import Console

from falaj.demo import report
from falaj.demo.figures import Copied, Figures, Interruption, Live, Streamed, Tally, Timed
from falaj.demo.follower import histogram, percentiles
from falaj.demo.screen import Screen

AIRLINES = {"UA": "United Air Lines Inc.", "AA": "A <b>& Airlines", "OO": "SkyWest Airlines Inc."}


def figures(interruption: Interruption | None) -> Figures:
    live = Live(
        totals={"EWR": 120_835, "JFK": 111_279, "LGA": 104_662},
        seen={"EWR": 120_835, "JFK": 111_279, "LGA": 104_662},
        states={"JFK": "killed, starts again"},
        carriers={"UA": (90, 80, 800, 20), "AA": (110, 110, -110, 0)},
        median_us=80.0,
        history=[(0.5, {"EWR": 40}), (1.0, {"EWR": 90, "JFK": 60, "LGA": 50})],
    )
    latencies = array("q", [20_000, 80_000, 81_000, 2_000_000])
    delays = {("UA", hour): Tally(30, 28, 300 + hour, 7, 9, 200) for hour in range(5, 24)}
    delays |= {("AA", 7): Tally(40, 40, -40, 0, 0, 0), ("OO", 8): Tally(3)}
    return Figures(
        flights=200,
        payload_bytes=60_000,
        streamed=Streamed(
            live, 1.0, interruption, histogram(latencies), percentiles(latencies), 0.2
        ),
        rates=[Timed("3 writers, one by one", 200, 60_000, 0.001)],
        spark_seconds=12.0,
        copied=Copied(found=20 if interruption else None, flights=50),
        delays=delays,
        airlines=AIRLINES,
        airports={"EWR": "Newark Liberty Intl"},
        seconds=61.0,
    )


@pytest.fixture(scope="module")
def page() -> str:
    return report.write(figures(Interruption("JFK", 0.4, 0.6, 24)), ["falaj topic list -s 'a <b>'"])


class Tags(HTMLParser):
    """Checks that every opened tag is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.addresses += [text or "" for name, text in attrs if name.endswith(("href", "src"))]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_takes_nothing_from_elsewhere(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    assert all(address.startswith("#") for address in tags.addresses)
    assert not re.search(r"@import|url\((?!#)", page)


def test_the_page_tells_every_figure_that_the_demo_promises(page: str) -> None:
    text = re.sub(r"<[^>]+>", " ", page)
    for promised in ("exactly once", "60 kB", "200 k/s", "found 24 of them", "12 s", "median"):
        assert promised in text, promised
    assert "when 20 of them were in the topic" in text
    assert "each of 50 late flights once" in text
    assert "United Air Lines Inc." in text


def test_names_from_data_are_no_markup(page: str) -> None:
    assert "A <b>" not in page
    assert "A &lt;b&gt;&amp; Airlines" in page
    assert "falaj topic list -s &#x27;a &lt;b&gt;&#x27;" in page


def test_drawings_have_the_colours_of_the_page_in_light_and_dark(page: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) == 4
    for drawing in drawings:
        ElementTree.fromstring(drawing.replace("xlink:", ""))
        assert not re.search(r"#(?!fff)[0-9a-f]{6}\b", re.sub(r'(href="|url\()#\w+', "", drawing))
    used, defined = (
        set(re.findall(r"var\((--[\w-]+)\)", page)),
        set(re.findall(r"(--[\w-]+): light-dark\(", page)),
    )
    assert used <= defined


def test_ids_are_unique_although_several_drawings_share_a_page(page: str) -> None:
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(set(ids)) == len(ids)


def test_a_demo_too_short_for_a_death_has_a_report_too() -> None:
    assert "SIGKILL" not in report.write(figures(None), [])


def shown(*, terminal: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=80, force_terminal=terminal, highlight=False, _environ={"TERM": "xterm"}
    )
    screen, made = Screen(AIRLINES, console), figures(None)
    screen.title(1, "A step")
    with screen.following(made.streamed.live) as changed:
        changed()
    screen.done("something")
    screen.figures(made)
    screen.commands("Explore:", ["falaj topic list -s " + "x" * 90])
    return out.getvalue()


def test_in_a_pipe_there_are_neither_colours_nor_moving_parts() -> None:
    piped = shown(terminal=False)
    assert "\x1b" not in piped
    assert "behind and sees" not in piped


def test_on_a_terminal_of_80_columns_no_line_is_broken() -> None:
    plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown(terminal=True))
    for line in plain.replace("\r", "\n").splitlines():
        assert len(line) <= 80 or "x" * 90 in line, line
    words = "3 writers, one by one", "the follower is 80 µs behind and sees", "killed, starts again"
    for whole in words:
        assert whole in plain
    assert "falaj topic list -s " + "x" * 90 in plain


def test_latencies_fall_into_bars_by_their_logarithm() -> None:
    bars = histogram(array("q", [-5, 900, 1_000, 2_000, 2_001, 1_000_000]))
    assert bars[:2] == [(1.0, 3), (2.0, 2)]
    assert sum(count for _, count in bars) == 6
    found = percentiles(array("q", range(0, 1_001_000, 1_000)))
    assert found == {"p50": 500.0, "p99": 990.0, "p999": 999.0, "max": 1000.0}

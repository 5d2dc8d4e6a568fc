"""The page, read as a browser would."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

import pytest

from hpu_profiler.report.analysis import report
from hpu_profiler.report.html import render
from hpu_profiler.report.model import Report
from hpu_profiler.trace.reading import read

from ..traces import Writer  # noqa: TID252 - pytest gives the folder of tests no absolute name

# Elements that have no end.
_VOID: Final = {"br", "hr", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """A page, taken apart.

    Attributes:
        text: All that a reader sees, words apart by one space.
        tags: Every element's tag, in order.
        references: What would be fetched from elsewhere.
        faults: Elements that end where they should not.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.references: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.feed(source)
        self.close()
        self.faults += [f"{tag} does not end" for tag in self._open]
        self.text = " ".join(self._words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(value) for name, value in attrs if name in {"src", "href"}]
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.faults.append(f"{tag} ends in {self._open}")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self._words += data.split()


@pytest.fixture
def page(made: Report) -> Page:
    """The page on two ranks."""
    return Page(render(made))


def test_elements_end_where_they_should(page: Page) -> None:
    """So that browsers agree on the page."""
    assert page.faults == []


def test_the_page_needs_nothing_else(page: Page) -> None:
    """No script, and no file from elsewhere."""
    assert page.references == []
    assert "script" not in page.tags


def test_the_page_says_that_the_card_is_simulated(page: Page) -> None:
    """At the top, and what that means at the bottom."""
    assert page.text.startswith("hpu-profiler report Where the time goes simulated")
    assert "say nothing about how fast a card would be" in page.text


def test_the_page_names_the_slowest_rank(page: Page) -> None:
    """With both ranks side by side."""
    assert "rank 1 slowest" in page.text
    assert "A step, side by side" in page.text


def test_waiting_in_collectives_is_no_work(page: Page) -> None:
    """Rank 0 computes or copies for 42 us of 200, and waits for 130."""
    assert "rank 0 at work 21 %" in page.text


def test_each_rank_has_a_timeline(page: Page) -> None:
    """Of five lanes: steps, host, and three engines."""
    assert page.tags.count("svg") == 2 * 5


def test_names_are_text_whatever_is_in_them(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """A kernel may be called as its maker likes."""
    trace = read(make_trace(writer.step(0, 0, 9), writer.work("<b>&kernel", 1, 2)))

    page = Page(render(report([trace])))

    assert page.faults == []
    assert "<b>&kernel" in page.text


def test_a_page_on_the_host_alone_says_nothing_of_a_card(writer: Writer, make_trace: Callable[..., Path]) -> None:
    """Operators are compared by their own time."""
    trace = read(make_trace(writer.operator("aten::mm", 0, 5)))

    page = Page(render(report([trace])))

    assert page.faults == []
    assert "no card" in page.text
    assert "Operators by time on the host aten::mm 5 us, 100 %" in page.text
    assert "Card idle" not in page.text


def test_a_page_on_an_empty_trace_is_one(make_trace: Callable[..., Path]) -> None:
    """Which says that there is nothing."""
    page = Page(render(report([read(make_trace())])))

    assert page.faults == []
    assert "No operator was recorded." in page.text

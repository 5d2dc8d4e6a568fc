"""Tests of the HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hpu_sim.common.document import MAX_ENTRIES as MAX_LINES
from hpu_sim.report.view import document
from hpu_testing.pages import Page

from .factories import make_frame, make_record, make_report, make_site

if TYPE_CHECKING:
    from hpu_sim.report.schema import Report


def render(report: Report) -> str:
    return document(report).html()


@pytest.fixture(scope="module")
def page() -> Page:
    """Return a page with every section."""
    library = make_frame(file="/env/torch/_tensor.py", line=7, function="item", source="", is_user=False)
    sites = (
        make_site(stack=(library, make_frame()), frame_index=1),
        make_site(cause="ModelCheckpoint.on_train_epoch_end", count=1, in_first_step=0, steps=1),
        make_site(kind="unsupported", op="aten::fft", stack=(make_frame(source='x = "<b>" & y'),)),
        make_site(kind="h2d", op="copy", variant="pageable", bytes=2048, examples=["float32[8]"]),
        make_site(kind="compilation", op="aten::mul", variant="shapes"),
        make_site(kind="collective", op="allreduce", variant="int64"),
        make_site(kind="dtype", op="aten::mul", variant="float64", backward="Pow", frame_index=None, stack=()),
    )
    first = make_record(sites=sites, world_size=3)
    report = make_report(first, make_record(rank=1, state="running"), missing_ranks=(2,), exit_code=-15)
    return Page(render(report))


def test_elements_are_nested_correctly(page: Page) -> None:
    """Source code is escaped."""
    assert page.errors == []
    assert page.count("b") == 0


def test_the_page_loads_nothing(page: Page) -> None:
    tags = {tag for tag, _ in page.elements}
    source = render(make_report(make_record()))

    assert tags.isdisjoint({"script", "link", "img", "iframe"})
    assert page.references() == []
    assert not any(each in source for each in ("url(", "@import", "http"))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "Gaudi readiness report simulated train.py --epochs 3 2 x GAUDI2, SynapseAI 1.24.1, lazy mode, "
            "torch 2.13.0 · terminated by SIGTERM · 2026-01-02 03:04:05 UTC",
            id="command and machine",
        ),
        pytest.param('x = "<b>" & y', id="source code"),
        pytest.param("no Python line", id="event without a frame"),
        pytest.param("The thread ran no Python.", id="event without a stack"),
        pytest.param("10 (killed)", id="killed rank"),
        pytest.param("Rank 2 left no record", id="missing rank"),
        pytest.param("3 GiB of 96 GiB", id="peak memory"),
    ],
)
def test_the_page_shows(text: str, page: Page) -> None:
    assert text in page.text


def test_every_line_expands_to_its_stack(page: Page) -> None:
    assert page.count("details", class_="line") >= 6
    assert page.count("ol", class_="stack") == page.count("details", class_="line")
    assert "/env/torch/_tensor.py:7 in item /home/me/train.py:42 in train loss = step(batch)" in page.text
    assert page.count("li", class_="user") > 0


def test_lines_are_grouped_by_occurrence(page: Page) -> None:
    first, _, second = page.text.rpartition("Host-device synchronization ")[2].partition(" Some steps ")

    assert first.startswith("The host waited until the device was idle. Every step train.py:42")
    assert second.startswith("train.py:42 ModelCheckpoint.on_train_epoch_end once in 1 of 10 steps")


def test_number_of_lines_is_limited() -> None:
    sites = tuple(make_site(stack=(make_frame(line=line),), steps=1) for line in range(MAX_LINES + 3))
    page = Page(render(make_report(make_record(sites=sites))))

    assert page.count("details", class_="line") == MAX_LINES
    assert "and 3 more lines in the JSON report." in page.text


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [(0, "exited with code 0"), (3, "exited with code 3"), (-9, "terminated by SIGKILL"), (None, "2.13.0 · 2026")],
)
def test_exit_status(exit_code: int | None, text: str) -> None:
    assert text in Page(render(make_report(make_record(), exit_code=exit_code))).text


def test_page_without_findings_says_why() -> None:
    assert "No findings" in Page(render(make_report(make_record()))).text
    failed = Page(render(make_report(make_record(), exit_code=3)))
    assert "No findings, but the program exited with code 3" in failed.text


def test_program_without_a_device_gets_a_page() -> None:
    page = Page(render(make_report(command=())))

    assert page.errors == []
    assert "No process used a simulated card" in page.text

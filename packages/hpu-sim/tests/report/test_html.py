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
        make_site(cause="ModelCheckpoint.on_train_epoch_end", count=1, in_first_step=0, steps=1, first_step=10),
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
    assert page.errors == []


def test_page_has_no_scripts_and_no_links(page: Page) -> None:
    tags = {tag for tag, _ in page.elements}

    assert tags.isdisjoint({"script", "link", "img", "iframe"})
    assert page.references() == []


def test_style_loads_nothing() -> None:
    source = render(make_report(make_record()))

    assert "url(" not in source
    assert "@import" not in source
    assert "http" not in source


def test_header_shows_command_and_machine(page: Page) -> None:
    assert page.text.startswith(
        "Gaudi readiness report Gaudi readiness report simulated train.py --epochs 3 2 \N{MULTIPLICATION SIGN} GAUDI2 "
        "with 96 GiB, SynapseAI 1.24.1, lazy mode, torch 2.13.0 · terminated by SIGTERM · 2026-01-02 03:04:05 UTC"
    )


def test_every_line_expands_to_its_stack(page: Page) -> None:
    assert page.count("details", class_="line") >= 6
    assert page.count("ol", class_="stack") == page.count("details", class_="line")
    assert "/env/torch/_tensor.py:7 in item /home/me/train.py:42 in train loss = step(batch)" in page.text
    assert page.count("li", class_="user") > 0


def test_lines_are_grouped_by_occurrence(page: Page) -> None:
    first, _, second = page.text.rpartition("Host-device synchronization ")[2].partition(" Teardown ")

    assert first.startswith("The host waited until the device was idle. Every step train.py:42")
    assert second.startswith("train.py:42 ModelCheckpoint.on_train_epoch_end once in 1 of 10 steps")


def test_source_code_is_escaped(page: Page) -> None:
    assert 'x = "<b>" & y' in page.text
    assert page.count("b") == 0


def test_event_without_a_frame_has_no_line_and_no_stack(page: Page) -> None:
    assert "no Python line" in page.text
    assert "The thread ran no Python." in page.text


def test_killed_and_missing_ranks_are_named(page: Page) -> None:
    assert "10 (killed)" in page.text
    assert "Rank 2 left no record" in page.text


def test_memory_shows_the_peak_of_each_rank(page: Page) -> None:
    assert page.text.count("3 GiB of 96 GiB") == 2


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
    assert "Only totals were recorded" in Page(render(make_report(make_record(detail="counts")))).text


def test_program_without_a_device_gets_a_page() -> None:
    page = Page(render(make_report(command=())))

    assert page.errors == []
    assert "No process used a simulated card" in page.text

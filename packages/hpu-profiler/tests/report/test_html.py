"""HTML report."""

from collections.abc import Callable

import pytest

from hpu_profiler.analysis.job import JobAnalysis, analyze_job
from hpu_profiler.report.html import render_html
from hpu_profiler.trace.model import Trace
from hpu_testing.pages import Page

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name


@pytest.fixture
def page(job: JobAnalysis) -> Page:
    """Page for two ranks."""
    return Page(render_html(job))


def test_page_is_well_formed(page: Page) -> None:
    assert page.errors == []


def test_page_needs_no_other_files(page: Page) -> None:
    assert page.references() == []


def test_page_says_that_the_card_is_simulated(fast_rank: Trace) -> None:
    fast_rank.simulated = True

    page = Page(render_html(analyze_job([fast_rank])))

    assert page.text.startswith("hpu-profiler report HPU profile simulated")
    assert "do not predict the times of a card" in page.text
    assert "of simulated time" in page.text


def test_page_says_that_times_are_predicted(fast_rank: Trace) -> None:
    fast_rank.predicted = True

    page = Page(render_html(analyze_job([fast_rank])))

    assert page.text.startswith("hpu-profiler report HPU profile predicted, not measured")
    assert "The times are predicted, not measured" in page.text
    assert "of predicted time" in page.text


def test_page_of_a_card_mentions_neither_simulation_nor_prediction(page: Page) -> None:
    assert "simulated" not in page.text
    assert "predicted" not in page.text


def test_page_names_the_straggler(page: Page) -> None:
    assert "rank 1, straggler" in page.text


def test_saving_is_that_of_an_epoch(page: Page) -> None:
    """An epoch has 50 batches."""
    assert "Saves 2.75 ms per epoch." in page.text


def test_exposed_communication_is_not_compute(page: Page) -> None:
    """Rank 0 computes or copies for 42 us of 200 us and waits for 130 us."""
    assert "rank 0 compute 21 %" in page.text


def test_code_between_backticks_is_marked_up(page: Page) -> None:
    assert "`" not in page.text


def test_names_are_escaped(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(builder.step(0, 0, 9), builder.device_event("<b>&kernel", 1, 2))

    page = Page(render_html(analyze_job([trace])))

    assert page.errors == []
    assert "<b>&kernel" in page.text


def test_page_without_a_device_compares_self_cpu_time(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(builder.operator("aten::mm", 0, 5))

    page = Page(render_html(analyze_job([trace])))

    assert page.errors == []
    assert "no card" in page.text
    assert "Operators by time on the host" in page.text
    assert "aten::mm 1 - 100 % 5 us 5 us" in page.text
    assert "Time on the card" not in page.text


def test_page_of_an_empty_trace_is_well_formed(make_trace: Callable[..., Trace]) -> None:
    page = Page(render_html(analyze_job([make_trace()])))

    assert page.errors == []
    assert "No operators were recorded." in page.text


def test_page_of_64_ranks_has_a_bar_for_eight_of_them(builder: TraceBuilder, make_trace: Callable[..., Trace]) -> None:
    traces = [
        make_trace(
            builder.step(0, 0, 100),
            builder.device_event("toy_gemm", 0, rank + 9),
            name=f"{rank}.json",
            hpu_profiler={"rank": rank, "host": f"node-{rank}"},
        )
        for rank in range(64)
    ]
    source = render_html(analyze_job(traces))

    assert source.count('<div class="meter"') == 8
    assert "Ranks: the 6 slowest of 64" in source
    assert " · 64 hosts</p>" in source

"""Fixtures: headless Chromium, and a report in it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_profiler.analysis.job import analyze_job
from hpu_profiler.report.html import render_html
from hpu_profiler.trace.model import Trace

from ..trace_builder import TraceBuilder  # noqa: TID252 - pytest gives the folder of tests no absolute name

_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DESK, PHONE = (1280, 900), (375, 812)


@pytest.fixture(scope="session")
def browser(pytestconfig: pytest.Config) -> Iterator[Any]:
    """Headless Chromium."""
    if pytestconfig.getoption("quick", default=False):
        # playwright starts its driver in an event loop, which makes another error of the option's own skip.
        pytest.skip("starts a process")
    if _CHROMIUM is None:
        pytest.skip("the page is tested in Chromium, which is not installed")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tested in Chromium through playwright")
    with sync_api.sync_playwright() as playwright:
        # A container has no user namespaces for the sandbox.
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def file(
    fast_rank: Trace, slow_rank: Trace, builder: TraceBuilder, make_trace: Callable[..., Trace], tmp_path: Path
) -> Path:
    """Page for two ranks in training, and a validation with modules, stacks and memory."""
    validation = make_trace(
        builder.step(0, 0, 100),
        builder.annotation("[pl][profile][Strategy]S.validation_step", 10, 80),
        builder.annotation("[pl][module]torch.nn.Sequential: layers", 20, 40),
        builder.annotation("[pl][module]torch.nn.Linear: layers.0", 25, 20),
        builder.frame("train.py(5): validation_step", 11, 70),
        builder.frame("train.py(9): metric", 62, 15),
        builder.operator("aten::addmm", 30, 10, 1),
        builder.device_event("aten::addmm", 31, 8, "MME", external_id=1),
        builder.allocation(30, 8, total=1 << 20),
        builder.allocation(60, 8, total=1 << 10),
        name="fit-0-validation.2.pt.trace.json",
        hpu_profiler={"rank": 0, "world_size": 2, "stage": "validation"},
    )
    path = tmp_path / "report.html"
    path.write_text(render_html(analyze_job([fast_rank, slow_rank, validation])), encoding="utf-8")
    return path


@pytest.fixture
def open_page(browser: Any, file: Path) -> Iterator[Callable[..., Any]]:
    """Return a function that opens the page at a size; an error in its console fails the test."""
    pages: list[Any] = []
    problems: list[str] = []

    def open_at(size: tuple[int, int] = DESK) -> Any:
        page = browser.new_page(viewport={"width": size[0], "height": size[1]})
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None if request.url.startswith(("file:", "data:", "blob:")) else problems.append(request.url)
            ),
        )
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield open_at
    for page in pages:
        page.close()
    assert problems == []


@pytest.fixture
def page(open_page: Callable[..., Any]) -> Any:
    """Page at the width of a desk."""
    return open_page()

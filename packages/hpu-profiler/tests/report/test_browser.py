"""The HTML page in headless Chromium: zoom, search, filters, trees, keyboard, at two widths."""

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import DESK, PHONE


def _range(page: Any) -> tuple[float, float]:
    start, end = page.evaluate("[timeline.start, timeline.end]")
    return start, end


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_page_fits_its_width(size: tuple[int, int], open_page: Callable[..., Any]) -> None:
    page = open_page(size)

    assert page.evaluate("document.documentElement.scrollWidth") == size[0]
    assert page.locator("#timeline").bounding_box()["width"] > 0.8 * size[0]


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_timeline_draws_events(size: tuple[int, int], open_page: Callable[..., Any]) -> None:
    """The canvas has the color of collectives."""
    page = open_page(size)

    colors = page.evaluate(
        """() => {
          const { width, height } = timeline.canvas;
          const pixels = new Uint32Array(timeline.context.getImageData(0, 0, width, height).data.buffer);
          return [...new Set(pixels)].map((value) => value & 0xffffff);
        }"""
    )
    # #8e5bb5 in the byte order of a canvas.
    assert 0xB55B8E in colors


def test_buttons_zoom_and_reset(page: Any) -> None:
    page.click("#zoom-in")
    assert _range(page) == (50, 150)
    assert page.inner_text("#status") == "50 us to 150 us"

    page.click("#reset")
    assert _range(page) == (0, 200)


def test_wheel_zooms_at_the_pointer(page: Any) -> None:
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 60)
    page.mouse.wheel(0, -400)

    start, end = _range(page)
    assert end == pytest.approx(200, abs=1)
    assert end - start == pytest.approx(200 / 2.718, rel=0.02)


def test_dragging_pans(page: Any) -> None:
    page.click("#zoom-in")
    page.locator("#timeline").scroll_into_view_if_needed()
    box = page.locator("#timeline").bounding_box()
    page.mouse.move(box["x"] + 800, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 600, box["y"] + 60)
    page.mouse.up()

    start, end = _range(page)
    assert start > 60
    assert end - start == pytest.approx(100)


def test_keys_zoom_and_pan(page: Any) -> None:
    page.focus("#timeline")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert _range(page) == (65, 165)

    page.keyboard.press("0")
    assert _range(page) == (0, 200)


def test_search_finds_events(page: Any) -> None:
    """The slash key leads to the field, and Enter to the matches one by one."""
    page.keyboard.press("/")
    page.keyboard.type("allreduce")
    assert page.inner_text("#status") == "4 events match"

    page.keyboard.press("Enter")
    assert page.inner_text("#status") == "Match 1 of 4: hccl:allreduce: 70 us, at 20 us, rank 0"
    page.click("#next")
    assert page.inner_text("#status").startswith("Match 2 of 4: ")


def test_search_without_a_match_says_so(page: Any) -> None:
    page.fill("#search", "absent")
    assert page.inner_text("#status") == "0 events match"
    page.click("#next")
    assert page.inner_text("#status") == "No match"


def test_clicked_event_is_described(page: Any) -> None:
    """The description is in a live region, which screen readers announce."""
    point = page.evaluate(
        """() => {
          const row = timeline.rows.find((each) => each.track?.title === "NIC");
          const [x, width] = timeline.place(row.track, 0);
          return { x: x + width / 2, y: row.y + 5 };
        }"""
    )
    page.locator("#timeline").click(position=point)

    assert page.inner_text("#status") == "hccl:allreduce: 70 us, at 20 us, rank 0"
    assert page.get_attribute("#status", "aria-live") == "polite"


def test_rank_filter_hides_the_other_ranks(page: Any) -> None:
    page.select_option("#rank", label="rank 1, train")

    assert page.evaluate("timeline.visibleTraces().map((trace) => trace.rank)") == [1]
    assert page.locator("tr[data-rank='1']").first.is_visible()
    assert not page.locator("tr[data-rank='0']").first.is_visible()


def test_stage_filter_hides_the_other_stages(page: Any) -> None:
    page.select_option("#stage", "validate")

    assert not page.locator("section[data-stage='train']").first.is_visible()
    assert page.locator("section[data-stage='validate']").first.is_visible()
    assert page.inner_text("#flame-title") == "Flame graph of the stacks (rank 0, validate)"


def test_kind_filter_removes_rows(page: Any) -> None:
    rows = page.evaluate("timeline.rows.length")
    page.uncheck("#kinds input[value='device']")

    assert page.evaluate("timeline.rows.length") < rows
    assert page.evaluate("timeline.rows.every((row) => row.track?.kind !== 'device')")


def test_tree_is_used_by_keyboard(page: Any) -> None:
    page.select_option("#stage", "validate")
    item = page.locator("#module-tree [role='treeitem']").first
    item.focus()
    assert item.get_attribute("aria-expanded") == "false"

    page.keyboard.press("ArrowRight")
    assert item.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    assert "layers.0 (Linear)" in page.evaluate("document.activeElement.innerText")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert item.get_attribute("aria-expanded") == "false"


def test_flame_graph_zooms_to_a_function(page: Any) -> None:
    page.select_option("#stage", "validate")
    page.focus("#flame")
    page.keyboard.press("ArrowDown")
    assert page.inner_text("#flame-status") == "train.py(9): metric: 15 us, 21.4 %, 1 calls"

    page.keyboard.press("Home")
    assert page.inner_text("#flame-status").startswith("all: 70 us, 100.0 %")


def test_memory_has_its_peak(page: Any) -> None:
    assert page.inner_text("#memory-status") == "rank 0, HPU 0: peak 1 MiB"


def test_a_million_events_are_drawn_by_pixels(page: Any) -> None:
    """The number of drawn rectangles depends on the width of the canvas, not on the number of events."""
    drawn = page.evaluate(
        """() => {
          const count = 1e6;
          const track = timeline.rows.find((row) => row.track).track;
          Object.assign(track, {
            starts: Float64Array.from({ length: count }, (_, i) => i),
            durations: new Uint32Array(count).fill(5),
            names: new Uint32Array(count),
          });
          timeline.duration = count;
          timeline.reset();
          let drawn = 0;
          const fillRect = timeline.context.fillRect;
          timeline.context.fillRect = function (...values) { drawn++; fillRect.apply(this, values); };
          timeline.paint();
          return drawn;
        }"""
    )
    assert drawn < 1280 * 2

"""The HTML page in headless Chromium: widths, keyboard, forced colors, dark mode, accessibility tree."""

from collections.abc import Callable
from typing import Any

import pytest

from .conftest import DESK, PHONE

_CONTRAST = """() => {
  const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (color) => {
    const [red, green, blue] = color.match(/\\d+/g).map((value) => channel(value / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const background = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return color === "rgba(0, 0, 0, 0)" ? background(element.parentElement) : color;
  };
  return [...document.querySelectorAll("h1, h2, h3, p, td, th, summary, code, .legend, .muted")].map((element) => {
    const pair = [luminance(getComputedStyle(element).color), luminance(background(element))];
    return Math.max(...pair) / Math.min(...pair);
  });
}"""


def _nodes(page: Any) -> list[dict[str, Any]]:
    """Return the nodes of the accessibility tree that a screen reader gets."""
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [node for node in nodes if not node["ignored"]]


def _of_role(page: Any, *roles: str) -> list[str]:
    """Return the names of the nodes of a role."""
    return [_value(node, "name") for node in _nodes(page) if _value(node, "role") in roles]


def _value(node: dict[str, Any], key: str) -> str:
    return str(node.get(key, {}).get("value", ""))


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_page_fits_its_width(size: tuple[int, int], open_page: Callable[..., Any]) -> None:
    page = open_page(size)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")

    assert page.evaluate("document.documentElement.scrollWidth") == size[0]


def test_page_has_no_script(page: Any) -> None:
    assert page.evaluate("document.scripts.length") == 0


def test_each_step_has_a_column(page: Any) -> None:
    """Its parts are as high as their share of the longest step."""
    heights = page.evaluate(
        """() => [...document.querySelector(".steps").children].map((step) =>
          [...step.children].reduce((sum, part) => sum + part.getBoundingClientRect().height, 0) / 72)"""
    )

    assert heights == [pytest.approx(1, abs=0.02)] * 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str, page: Any) -> None:
    page.emulate_media(color_scheme=scheme)

    assert min(page.evaluate(_CONTRAST)) >= 4.5


def test_forced_colors_keep_the_colors_that_have_a_meaning(page: Any) -> None:
    page.emulate_media(forced_colors="active")

    color = "getComputedStyle(document.querySelector('.meter .card-work')).backgroundColor"
    assert page.evaluate(color) == "rgb(47, 116, 181)"


def test_tab_key_reaches_every_control(page: Any) -> None:
    """The focus is visible at each."""
    reachable = page.evaluate(
        """() => [...document.querySelectorAll("a, button, summary, [tabindex='0']")]
          .filter((each) => each.checkVisibility()).length"""
    )
    widths = []
    while True:
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        widths.append(page.evaluate("parseFloat(getComputedStyle(document.activeElement).outlineWidth)"))

    assert len(widths) == reachable > 5
    assert min(widths) >= 2


@pytest.mark.parametrize("role", ["table", "image", "img", "heading", "region", "columnheader"])
def test_part_of_the_page_has_a_name(role: str, page: Any) -> None:
    assert "" not in _of_role(page, role)


def test_tables_are_told_apart(page: Any) -> None:
    """A screen reader lists tables by their names."""
    names = _of_role(page, "table")

    assert "Ranks in stage train" in names
    assert len(set(names)) == len(names)


def test_charts_are_described(page: Any) -> None:
    """Their parts have colors only."""
    images = _of_role(page, "image", "img")

    assert any(name.startswith("rank 0: compute and copies ") and ", idle: " in name for name in images)
    assert "rank 0: ProfilerStep#0 100 us, ProfilerStep#1 100 us" in images


def test_page_does_not_move_by_itself(page: Any) -> None:
    """So there is nothing for `prefers-reduced-motion` to reduce."""
    assert page.evaluate("document.getAnimations().length") == 0

"""The HTML page in headless Chromium: its accessibility tree, the keyboard, forced colors, dark mode."""

from collections.abc import Callable
from typing import Any

import pytest

_COLORS = ("kernel", "memcpy", "collective", "compilation", "data-loading", "annotation", "operator", "frame", "step")
# The element that has the focus: its id, or its text, role and tag.
_FOCUSED = """() => {
  const element = document.activeElement;
  return element === document.body ? null : element.id || `${element.innerText.split("\\n")[0]}|${element.tagName}`;
}"""
_CONTRAST = """(names) => {
  const channel = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const luminance = (color) => {
    const digits = color.length === 4 ? color.replace(/[0-9a-f]/g, "$&$&") : color;
    const [red, green, blue] = [1, 3, 5].map((start) => channel(parseInt(digits.slice(start, start + 2), 16) / 255));
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05;
  };
  const style = getComputedStyle(document.documentElement);
  return names.map((name) => {
    const color = style.getPropertyValue(`--${name}`).trim();
    const pair = [luminance(color), luminance(labelColor(color))];
    return Math.max(...pair) / Math.min(...pair);
  });
}"""


def _nodes(page: Any) -> list[dict[str, Any]]:
    """Return the nodes of the accessibility tree that a screen reader gets."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    return [node for node in nodes if not node["ignored"]]


def _value(node: dict[str, Any], key: str) -> str:
    return str(node.get(key, {}).get("value", ""))


def _of_role(page: Any, role: str) -> list[str]:
    """Return the names of the nodes of a role."""
    return [_value(node, "name") for node in _nodes(page) if _value(node, "role") == role]


def _is_focusable(node: dict[str, Any]) -> bool:
    return any(each["name"] == "focusable" and each["value"]["value"] for each in node.get("properties", []))


def _open_everything(page: Any) -> None:
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")


def test_every_control_has_a_role_and_a_name(page: Any) -> None:
    _open_everything(page)

    controls = [node for node in _nodes(page) if _is_focusable(node) and _value(node, "role") != "RootWebArea"]

    assert len(controls) > 20
    assert [node for node in controls if _value(node, "role") in {"", "generic"} or not _value(node, "name")] == []


def test_kinds_of_events_are_a_named_group(page: Any) -> None:
    assert "Kinds of events" in _of_role(page, "group")


@pytest.mark.parametrize("role", ["table", "tree", "image", "img", "heading", "region"])
def test_part_of_the_page_has_a_name(role: str, page: Any) -> None:
    _open_everything(page)

    assert "" not in _of_role(page, role)


def test_tables_are_told_apart(page: Any) -> None:
    """A screen reader lists tables by their names."""
    _open_everything(page)

    names = _of_role(page, "table")

    assert "Ranks in stage train" in names
    assert len(set(names)) == len(names)


def test_every_column_has_a_header(page: Any) -> None:
    _open_everything(page)

    assert "" not in _of_role(page, "columnheader")
    assert "rank 0" in _of_role(page, "rowheader")


def test_bars_are_described(page: Any) -> None:
    """Their parts have colors only."""
    bars = [name for name in (*_of_role(page, "image"), *_of_role(page, "img")) if name.startswith("rank 0: ")]

    assert bars
    assert bars[0].startswith("rank 0: compute and copies ")
    assert ", exposed communication " in bars[0]
    assert ", idle: " in bars[0]


def test_memory_chart_is_described(page: Any) -> None:
    assert "Memory over time rank 0, HPU 0: peak 1 MiB" in (*_of_role(page, "image"), *_of_role(page, "img"))


@pytest.mark.parametrize(
    ("name", "keys"), [("Timeline", "searches"), ("Flame graph of the stacks (rank 0, train)", "leads to a callee")]
)
def test_canvas_describes_its_keys_and_state(name: str, keys: str, page: Any) -> None:
    page.click("#zoom-in")
    [canvas] = [node for node in _nodes(page) if _value(node, "role") == "application" and _value(node, "name") == name]

    assert keys in _value(canvas, "description")
    if name == "Timeline":
        assert "50 us to 150 us" in _value(canvas, "description")


def _timeline_rows(page: Any) -> list[list[str]]:
    rows: list[list[str]] = page.evaluate(
        """() => [...document.querySelectorAll("#timeline-table tbody tr")]
          .map((row) => [...row.cells].map((each) => each.innerText))"""
    )
    return rows


def test_timeline_has_a_table(page: Any) -> None:
    """It follows the filters."""
    page.click("#timeline-table summary")
    # The browser sends "toggle" later.
    page.wait_for_selector("#timeline-table tbody tr")
    assert ["rank 0, train", "card: NIC", "hccl:allreduce, 70 us", "2", "140 us"] in _timeline_rows(page)

    page.select_option("#rank", label="rank 1, train")
    assert {row[0] for row in _timeline_rows(page)} == {"rank 1, train"}
    page.uncheck("#kinds input[value='device']")
    assert not any(row[1].startswith("card") for row in _timeline_rows(page))


def test_item_of_a_tree_is_named_by_its_own_figures(page: Any) -> None:
    """The name of an expanded item leaves out its children."""
    page.select_option("#stage", "validate")
    page.locator("#module-tree [role='treeitem']").first.focus()
    page.keyboard.press("ArrowRight")

    names = [name for name in _of_role(page, "treeitem") if name.startswith("layers")]

    assert len(names) == 2
    assert names[0].endswith(" on the host, 1 call")
    assert names[1].startswith("layers.0 (Linear): ")


def test_tab_key_reaches_every_control(page: Any) -> None:
    """A tree is one stop. The focus is visible at each."""
    reachable = page.evaluate(
        """() => [...document.querySelectorAll("a, button, select, input, summary, [tabindex='0']")]
          .filter((each) => each.checkVisibility()).length"""
    )
    stops, unseen = [], []
    while (stop := _press_tab(page)) is not None:
        stops.append(stop)
        if not page.evaluate(
            """() => {
              const seen = (element) => {
                const style = getComputedStyle(element);
                return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
              };
              const element = document.activeElement;
              return seen(element) || seen(element.querySelector(".row") ?? element);
            }"""
        ):
            unseen.append(stop)

    assert len(stops) == reachable
    assert {"rank", "stage", "search", "timeline", "flame"} <= set(stops)
    assert unseen == []


def _press_tab(page: Any) -> str | None:
    page.keyboard.press("Tab")
    focused: str | None = page.evaluate(_FOCUSED)
    return focused


def test_table_that_scrolls_sideways_is_reached_by_keyboard(open_page: Callable[..., Any]) -> None:
    page = open_page((390, 844))
    _open_everything(page)

    # The observer of sizes runs before the second frame.
    stops = page.evaluate(
        """async () => {
          for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
          const all = [...document.querySelectorAll(".scroll")];
          return all.filter((each) => each.scrollWidth > each.clientWidth).map((each) => each.tabIndex);
        }"""
    )
    assert stops
    assert set(stops) == {0}


def test_forced_colors_keep_bars_and_text(page: Any) -> None:
    """The system's colors replace text and lines; the colors that have a meaning stay."""
    page.emulate_media(forced_colors="active")
    page.evaluate("timeline.paint()")

    assert page.evaluate("timeline.text") == "CanvasText"
    for part in (".legend i.kernel", ".meter span.kernel"):
        assert (
            page.evaluate(f"getComputedStyle(document.querySelector('{part}')).backgroundColor") == "rgb(47, 116, 181)"
        )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_labels_of_events_have_contrast(scheme: str, page: Any) -> None:
    page.emulate_media(color_scheme=scheme)

    assert min(page.evaluate(_CONTRAST, list(_COLORS))) >= 4.5


def test_page_does_not_move_by_itself(page: Any) -> None:
    """So there is nothing for `prefers-reduced-motion` to reduce."""
    page.click("#zoom-in")
    page.select_option("#stage", "validate")

    assert page.evaluate("document.getAnimations().length") == 0
    assert page.evaluate(
        """() => [...document.querySelectorAll("*")].map((each) => getComputedStyle(each)).every((style) =>
          style.transitionDuration === "0s" && style.animationName === "none" && style.scrollBehavior === "auto")"""
    )

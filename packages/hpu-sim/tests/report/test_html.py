"""The page, read as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Final

import pytest

from hpu_sim.report.html import MAX_LINES, render
from hpu_sim.report.schema import CollectiveStats, Compilation, OptimizerMemory, Steps, UncaughtError

from .factories import make_frame, make_record, make_report, make_site

# Elements that have no end.
_VOID: Final = {"br", "hr", "img", "input", "link", "meta"}


class Page(HTMLParser):
    """A page, taken apart.

    Attributes:
        text: All that a reader sees, words apart by one space.
        elements: Pairs of a tag and its attributes, in order.
        faults: Elements that end where they should not.
    """

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self._words: list[str] = []
        self.feed(source)
        self.close()
        self.faults += [f"{tag} does not end" for tag in self._open]
        self.text = " ".join(self._words)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._open and self._open[-1] == tag:
            self._open.pop()
        else:
            self.faults.append(f"{tag} ends in {self._open}")

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self._words += data.replace("\u00ad", "").split()

    def count(self, tag: str, **attributes: str) -> int:
        """Return how many elements there are of a tag with these attributes."""
        wanted = {name.rstrip("_"): value for name, value in attributes.items()}
        return sum(each == tag and wanted.items() <= own.items() for each, own in self.elements)


@pytest.fixture
def full() -> Page:
    """A page on which everything occurs."""
    library = make_frame(file="/env/torch/_tensor.py", line=7, function="item", source="", is_user=False)
    sites = (
        make_site(stack=(library, make_frame()), frame_index=1),
        make_site(kind="refused", op="aten::fft", stack=(make_frame(source='x = "<b>" & y'),)),
        make_site(kind="h2d", op="copy", variant="pageable", bytes=2048, examples=("float32[8]",)),
        make_site(kind="compilation", op="aten::mul", variant="shapes"),
        make_site(kind="collective", op="allreduce", variant="int64"),
        make_site(kind="dtype", op="aten::mul", variant="float64", backward="Pow", frame_index=None, stack=()),
    )
    compilation = Compilation(
        4, True, "shapes", "aten::addmm", "float32[3], float32[1]", "float32[4], float32[1]", None
    )
    ended = Compilation(5, False, "end", "", "", "", make_frame())
    first = make_record(
        sites=sites,
        optimizer_memory=OptimizerMemory(1 << 30, 1 << 30, 2 << 30),
        compilations=(compilation, ended),
        collectives=(CollectiveStats("allreduce", 1200, 9600, ((8, 1200),)),),
        uncaught_error=UncaughtError("RuntimeError", "no", make_frame()),
        world_size=3,
    )
    return Page(render(make_report(first, make_record(rank=1, state="running"), missing_ranks=(2,), exit_code=-15)))


def test_the_page_is_whole(full: Page) -> None:
    """Every element ends where it should."""
    assert full.faults == []


def test_the_page_needs_nothing_else(full: Page) -> None:
    """No script and no link to anything."""
    tags = {tag for tag, _ in full.elements}
    addresses = [
        value for _, attributes in full.elements for name, value in attributes.items() if name in {"src", "href"}
    ]

    assert tags.isdisjoint({"script", "link", "img", "iframe"})
    assert addresses == []


def test_the_style_loads_nothing() -> None:
    """Nor does it name another file."""
    source = render(make_report(make_record()))

    assert "url(" not in source
    assert "@import" not in source
    assert "http" not in source


def test_the_page_is_light_and_dark(full: Page) -> None:
    """As the reader's system is."""
    assert full.count("meta", name="color-scheme", content="light dark") == 1


def test_it_says_simulated_and_what_was_run(full: Page) -> None:
    """At the top."""
    assert full.text.startswith(
        "hpu-sim report What a card would have met simulated train.py --epochs 3 2 \N{MULTIPLICATION SIGN} GAUDI2 "
        "with 96 GiB, SynapseAI 1.24.1, lazy mode, torch 2.13.0 · ended by SIGTERM · 2026-01-02 03:04:05 UTC"
    )


def test_lines_open_to_a_stack(full: Page) -> None:
    """With the program's own frames set apart."""
    assert "▸" not in full.text
    assert full.count("details", class_="line") >= 6
    assert full.count("ol", class_="stack") == full.count("details", class_="line")
    assert "/env/torch/_tensor.py:7 in item /home/me/train.py:42 in train loss = step(batch)" in full.text
    assert full.count("li", class_="user") > 0


def test_what_a_program_says_stays_text(full: Page) -> None:
    """Source lines hold anything."""
    assert 'x = "<b>" & y' in full.text
    assert full.count("b") == 0


def test_a_line_without_python_says_so(full: Page) -> None:
    """In the list and in place of the stack."""
    assert "no Python line" in full.text
    assert "No Python was running." in full.text


def test_code_in_advice_is_code() -> None:
    """What stands between backticks."""
    site = make_site(kind="compilation", op="aten::mul", variant="shapes")

    assert "<code>drop_last=True</code>" in render(make_report(make_record(sites=(site,))))


def test_changed_inputs_are_shown_alone(full: Page) -> None:
    """Those that stayed as they were say nothing."""
    assert "4 no Python line addmm float32[3] became float32[4]" in full.text
    assert "5 train.py:42 the graph ended where earlier ones went on" in full.text


def test_killed_and_missing_ranks_are_named(full: Page) -> None:
    """In the table and among what is not known."""
    assert "1 (killed)" in full.text
    assert "Rank 2 left no record" in full.text


def test_memory_is_compared_with_the_limit(full: Page) -> None:
    """Per rank, with what ZeRO would make of it."""
    assert "Rank 0: 3 GiB of 96 GiB at the peak; parameters 1 GiB, gradients 1 GiB, optimizer state 2 GiB" in full.text
    assert full.count("div", class_="meter") == 2
    assert "3 optimizer state, gradients and parameters" in full.text


def test_collectives_are_listed_by_size(full: Page) -> None:
    """With their calls."""
    assert "allreduce 1 200 9.4 KiB 1 200 \N{MULTIPLICATION SIGN} 8 B" in full.text


def test_steps_are_drawn(full: Page) -> None:
    """A bar for each that had something."""
    assert full.count("svg") == 4
    assert full.count("rect") == 2 * (10 + 2)
    assert full.count("rect", class_="edge") == 6


def test_syncs_per_step_in_words() -> None:
    """What is usual, and what is most."""
    steps = Steps(10, ((1, 6), (4, 2)), 1, (1,) * 10, (0,) * 10, (0,) * 10)

    assert "1 in every step" in Page(render(make_report(make_record()))).text
    assert "1 in 6 of 8 steps, at most 4" in Page(render(make_report(make_record(steps=steps)))).text


def test_long_lists_are_cut() -> None:
    """The page stays one that can be read."""
    sites = tuple(make_site(stack=(make_frame(line=line),), steps=1) for line in range(MAX_LINES + 3))
    page = Page(render(make_report(make_record(sites=sites))))

    assert page.count("details", class_="line") == MAX_LINES
    assert "and 3 more lines, which the JSON has." in page.text


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [(0, "ended well"), (3, "ended with exit code 3"), (-9, "ended by SIGKILL"), (None, "2.13.0 · 2026")],
)
def test_how_the_program_ended_is_said(
    exit_code: int | None,
    words: str,
) -> None:
    """Unless nobody waited for it."""
    assert words in Page(render(make_report(make_record(), exit_code=exit_code))).text


def test_a_good_run_is_told_from_one_that_was_not_looked_at() -> None:
    """Totals alone find nothing, and a run that failed did not go well."""
    assert "Nothing was found" in Page(render(make_report(make_record()))).text
    failed = Page(render(make_report(make_record(), exit_code=3)))
    assert "Nothing was found, but the program ended with exit code 3" in failed.text
    assert "Only totals were recorded" in Page(render(make_report(make_record(detail="counts")))).text


def test_a_program_without_a_card_gets_a_page() -> None:
    """That says so."""
    page = Page(render(make_report(command=())))

    assert page.faults == []
    assert "No process used a simulated card" in page.text

"""Tables of documents."""

from __future__ import annotations

import pytest

from hpu_sim.common.document import Document, Table, table


@pytest.mark.parametrize("width", [30, None])
def test_a_terminal_shows_every_column(width: int | None) -> None:
    """In one that is too narrow for the table, a row is a paragraph with the names of the columns."""
    part = Table(("strategy", "peak memory", "cost"), [("hpu_fsdp", "12.5 GiB", "30 to 40"), ("zero", "", "7")])

    lines = Document("", "", "", "heading", [part]).text(width).splitlines()

    if width is None:
        assert lines[1:] == [
            "  strategy  peak memory  cost", "  hpu_fsdp  12.5 GiB     30 to 40", "  zero                   7"
        ]  # fmt: skip
    else:
        assert max(map(len, lines)) <= width
        shown = " ".join(" ".join(lines[1:]).split())
        assert shown == "strategy hpu_fsdp; peak memory 12.5 GiB; cost 30 to 40 strategy zero; cost 7"


def test_a_column_without_a_cell_is_left_out() -> None:
    part = table({"name": str, "twice": lambda each: str(2 * each), "none": lambda _: ""}, [1, 2], title="numbers")

    assert (part.columns, part.rows, part.title) == (("name", "twice"), [("1", "2"), ("2", "4")], "numbers")

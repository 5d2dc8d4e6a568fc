"""The tables of docs/bridge.md are true."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_SCRIPT: Final = Path(__file__).with_name("table.py")
_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "bridge.md"


@pytest.fixture(scope="module")
def table() -> Any:
    """Return the script as a module."""
    spec = importlib.util.spec_from_file_location("bridge_table", _SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look up annotations there.
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("mode", ["0", "1"], ids=["eager", "lazy"])
@pytest.mark.parametrize("release", ["1.11.0", "1.12.1", "1.18.0", "1.19.2", "1.20.0", "1.24.1"])
def test_the_tables_are_true(release: str, mode: str, output_of: Callable[..., str]) -> None:
    """Calls exist with their signatures on the releases and in the modes of their row, and only there."""
    machine = {"HPU_SIM_DEVICES": "1", "HPU_SIM_RELEASE": release, "PT_HPU_LAZY_MODE": mode}

    assert output_of(_SCRIPT.read_text(encoding="utf-8"), _DOCUMENT, **machine) == ""


def test_every_row_is_read_once_and_has_a_verdict(table: Any) -> None:
    """A call is offered, or absent for a reason."""
    text = _DOCUMENT.read_text(encoding="utf-8")
    lines = [line for line in text.split("## Changes to torch")[0].splitlines() if line.startswith("| `")]

    rows = table.read(text)

    assert len({row.call for row in rows}) == len(rows) == len(lines) > 200
    assert [row for row in rows if not row.here.startswith(("offered", "absent: "))] == []


@pytest.mark.parametrize(
    ("call", "when", "here", "fault"),
    [
        ("os.path.join(a)", "", "offered", "has the parameters"),
        ("os.path.nothing()", "", "offered", "is missing"),
        ("os.path.nothing", "", "absent: why", None),
        ("os.path.join", "", "absent: why", "exists and should be absent"),
        ("os.path.join(a, *p)", "to 1.12", "offered", "on a release or in a mode that lacks it"),
        ("os.path.join(a, *p)", "eager or from 1.20", "offered", "on a release or in a mode that lacks it"),
        ("os.path.join(a, *p)", "lazy", "offered", None),
        ("os.path.join(a, *p)", "torch below 2.0", "offered", "on a release or in a mode that lacks it"),
    ],
)
def test_the_script_finds_faults(table: Any, call: str, when: str, here: str, fault: str | None) -> None:
    """It reports a row that is false on 1.18.0 in lazy mode, and not one that is true."""
    found = table.fault(table.Row(call, when, here), "1.18.0", lazy=True)

    assert (found is None) if fault is None else (fault in found)

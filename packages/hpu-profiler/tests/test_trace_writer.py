"""Writer for trace files."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from hpu_profiler._trace_writer import TraceWriter


def _export(path: str) -> None:
    Path(path).write_text('{"traceEvents": []}')


def _export_truncated(path: str) -> None:
    Path(path).write_text('{"traceEvents": [')


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_incomplete_trace_has_another_name(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    seen: list[str] = []

    def export(path: str) -> None:
        _export(path)
        seen.extend(_names(folder))

    path = TraceWriter(folder).write("fit-0-training", export)

    assert path is not None
    assert _names(folder) == [path.name]
    assert path.name.startswith("fit-0-training.")
    assert path.name.endswith(".pt.trace.json")
    assert not seen[0].endswith(".pt.trace.json")


@pytest.mark.parametrize("export", [_export_truncated, lambda path: None], ids=["truncated", "empty"])
def test_full_disk_is_noticed(export: Callable[[str], None], tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Torch does not report it."""
    writer = TraceWriter(tmp_path / "full")

    with caplog.at_level(logging.WARNING):
        path = writer.write("fit", export)

    assert path is None
    assert _names(tmp_path / "full") == []
    assert "the disk may be full" in writer.errors[0]
    assert "Training continues" in caplog.text

"""Where traces go."""

import logging
from pathlib import Path

import pytest

from hpu_profiler._files import Files


def _export(path: str) -> None:
    Path(path).write_text('{"traceEvents": []}')


def _export_half(path: str) -> None:
    Path(path).write_text('{"traceEvents": [')


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_trace_appears_when_it_is_whole(tmp_path: Path) -> None:
    """While it is being written, nobody takes it for one."""
    folder = tmp_path / "new"
    seen: list[str] = []

    def export(path: str) -> None:
        _export(path)
        seen.extend(_names(folder))

    saved = Files(folder, 1).save("fit-0-training", export)

    assert saved is not None
    assert _names(folder) == [saved.name]
    assert saved.name.startswith("fit-0-training.")
    assert saved.name.endswith(".pt.trace.json")
    assert not seen[0].endswith(".pt.trace.json")


def test_the_oldest_trace_makes_room(tmp_path: Path) -> None:
    """Of its own name; others stay."""
    files = Files(tmp_path, 2)
    saved = [files.save(name, _export) for name in ("a", "b", "a", "a")]

    assert files.traces == [saved[1], *saved[2:]]
    assert len(_names(tmp_path)) == 3


@pytest.mark.parametrize("export", [_export_half, lambda path: None], ids=["half", "nothing"])
def test_a_disk_that_is_full_is_noticed(
    export: object, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch itself says nothing of it; half a trace is none."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = Files(tmp_path / "full", 1)

    with caplog.at_level(logging.WARNING):
        saved = files.save("fit", export)  # type: ignore[arg-type] # One of the two above.

    assert saved is None
    assert _names(tmp_path / "full") == []
    assert "full" in files.failures[0]
    assert "Training goes on" in caplog.text


def test_a_trace_that_finds_no_place_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded is not lost, and where it is will be told."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    files = Files(blocked, 1)

    saved = files.save("fit", _export)

    assert saved is not None
    assert saved.exists()
    assert str(blocked) in files.failures[0]
    assert str(saved) in files.failures[1]


def test_what_only_the_summary_needs_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a folder, traces live until they have been summed up."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    files = Files(None, 1)
    saved = files.save("fit", _export)

    files.forget()

    assert saved is not None
    assert not saved.exists()
    assert files.failures == []
    assert files.traces == []

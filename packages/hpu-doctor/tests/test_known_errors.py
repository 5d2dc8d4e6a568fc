"""Tests of the known errors and of their data."""

import ast
import io
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpu_doctor.known_errors import KnownError, explain, known_errors

_ACQUIRED = "RuntimeError: synStatus=20 [Device already acquired] Device acquire failed."


def _error(name: str, *patterns: str) -> KnownError:
    return KnownError(id=name, patterns=patterns, example="", cause="", cure="", source="", on_card=False)


def _ids(text: bytes, *errors: KnownError) -> list[str]:
    return [found.error.id for found in explain(io.BytesIO(text), errors or None)]


def test_there_are_many_errors() -> None:
    assert len(known_errors()) >= 60
    assert len({error.id for error in known_errors()}) == len(known_errors())


@pytest.mark.parametrize("error", known_errors(), ids=lambda error: error.id)
def test_entry_is_complete_and_explains_itself_first(error: KnownError) -> None:
    for text in (error.example, *(pattern.replace("{}", "x") for pattern in error.patterns)):
        assert _ids(text.encode())[0] == error.id
    for text in (error.cause, error.cure):
        assert text.endswith(".")
        assert text.isascii()
    assert error.source
    assert " /" not in error.source


@pytest.mark.parametrize(
    ("text", "patterns", "found"),
    [
        (b"driver 1.22 does not match", ["driver {} does not match"], (1, "driver 1.22 does not match", 1)),
        # A placeholder stays on its line.
        (b"driver 1.22\ndoes not match", ["driver {} does not match"], None),
        (b"DEVICE lost", ["device lost"], (1, "DEVICE lost", 1)),
        (b"start\nlost 1\nok\nlost 2\n", ["lost"], (2, "lost 1", 2)),
        # The first line is that of any pattern.
        (b"start\ncard lost\nok\ndevice lost\n", ["device lost", "card lost"], (2, "card lost", 2)),
        # A line counts once.
        (
            b"device lost, status 8, device lost\n",
            ["device lost", "status 8"],
            (1, "device lost, status 8, device lost", 1),
        ),
        # A progress bar is not part of the line.
        (b"Epoch 1\rEpoch 2\rdevice lost\r\n", ["lost"], (1, "device lost", 1)),
        # Beyond the first block.
        (b"x" * 99 + b"\n" + b"line\n" * 400_000 + b"device lost", ["lost"], (400_002, "device lost", 1)),
    ],
)
def test_first_line_and_number_of_lines(text: bytes, patterns: list[str], found: tuple[int, str, int] | None) -> None:
    explanations = explain(io.BytesIO(text), [_error("lost", *patterns)])

    assert [(each.line_number, each.line, each.count) for each in explanations] == ([found] if found else [])


def test_long_line_is_shortened_around_the_match() -> None:
    (found,) = explain(io.BytesIO(b"a" * 500 + b" device lost " + b"b" * 500), [_error("lost", "device lost")])

    assert "device lost" in found.line
    assert len(found.line) < 300


def test_binary_data_survives() -> None:
    junk = bytes(range(256)) * 10

    assert _ids(junk + b"\n" + _ACQUIRED.encode() + b"\n" + junk)[0] == "device-already-acquired"


class _LargeLog(io.RawIOBase):
    """Log of 32 MB that exists only while it is read."""

    def __init__(self) -> None:
        self._parts = self._generate()

    @staticmethod
    def _generate() -> Iterator[bytes]:
        lines = b"Epoch 1: loss 0.25, step time 0.1 s\n" * 28_000
        for _ in range(32):
            yield lines
        yield _ACQUIRED.encode()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        part = next(self._parts, b"")
        size = min(len(part), len(buffer))
        buffer[:size] = part[:size]
        return size


def test_large_log_is_read_in_bounded_memory() -> None:
    known_errors()
    tracemalloc.start()
    try:
        found = explain(io.BufferedReader(_LargeLog(), 1 << 20))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert found[0].error.id == "device-already-acquired"
    assert peak < 16 << 20


_PACKAGES = Path(__file__).resolve().parents[2]
_OWN = re.compile(r"(hpu-[a-z]+)(?:$|[,;])")
# Parts that the messages get from constants and arguments.
_INSERTED = re.compile(r"HABANA_VISIBLE_MODULES|HABANA_PROFILE|hpu-\{\}")
_OWN_PACKAGES = (
    "hpu-bucketing",
    "hpu-core",
    "hpu-ddp",
    "hpu-deepspeed",
    "hpu-doctor",
    "hpu-fsdp",
    "hpu-precision",
    "hpu-profiler",
)


def _texts(package: str) -> str:
    """Return the string literals of a package, with its placeholders as `{}`."""
    texts: list[str] = []
    for path in sorted((_PACKAGES / package / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append(
                    "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                )
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


@pytest.mark.skipif(not (_PACKAGES / "hpu-ddp").exists(), reason="needs the sources of every package")
@pytest.mark.parametrize("package", _OWN_PACKAGES)
def test_messages_of_a_package_still_exist(package: str) -> None:
    """An entry that quotes this repository changes together with the message."""
    texts = _texts(package)
    errors = [error for error in known_errors() if (own := _OWN.match(error.source)) and own[1] == package]

    assert errors
    for error in errors:
        patterns = (*error.patterns, *(_INSERTED.sub("{}", pattern) for pattern in error.patterns))
        assert any(pattern in texts for pattern in patterns), error.id

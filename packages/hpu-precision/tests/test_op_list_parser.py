"""Tests of the op list parser."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_precision import OpListError, OpLists
from hpu_precision._op_list_parser import parse_file, parse_names


def _write(directory: Path, content: bytes) -> Path:
    path = directory / "ops.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"linear\nconv2d\n",
        b"linear\nconv2d",
        b"linear\r\nconv2d\r\n",
        b"linear\rconv2d\r",
        b"\n\n  linear\t\n\nconv2d\n\n",
        b"# matrices\nlinear # and vectors\nconv2d\n",
        b"\xef\xbb\xbflinear\nconv2d\n",
    ],
    ids=["plain", "no newline at end", "CRLF", "CR", "blanks", "comments", "byte order mark"],
)
def test_names_are_parsed(content: bytes, tmp_path: Path) -> None:
    entries = parse_file(_write(tmp_path, content), "bf16_file_path")

    assert [entry.name for entry in entries] == ["linear", "conv2d"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"linear\nconv2d relu\n", r"ops\.txt, line 2: .* must have one name per line, .* got 'conv2d relu'"),
        (b"linear,\n", r"ops\.txt, line 1: .* got 'linear,'"),
        (b"linear\n\xff\n", r"`bf16_file_path` must be a text file in UTF-8 .* byte 0xff in position 7"),
        (b"", r"`bf16_file_path` must name at least one op, got '.*ops\.txt', which is empty: leave the argument out"),
        (b"# nothing\n", r"`bf16_file_path` must name at least one op"),
        (b"x " * 100, r"got 'x x x .*\.\.\.'"),
    ],
    ids=["two names", "comma", "not UTF-8", "empty", "only a comment", "long line"],
)
def test_invalid_file_is_rejected(content: bytes, message: str, tmp_path: Path) -> None:
    """The error names the file, the line and the value."""
    with pytest.raises(OpListError, match=message):
        parse_file(_write(tmp_path, content), "bf16_file_path")


def test_unreadable_file_is_rejected(tmp_path: Path) -> None:
    """The error names the path, the current directory and the system's reason."""
    with pytest.raises(OpListError, match=r"cannot read 'nowhere\.txt' from '.+': No such file or directory"):
        parse_file("nowhere.txt", "bf16_file_path")
    with pytest.raises(OpListError, match=r"cannot read '.*' from .*: Is a directory"):
        parse_file(tmp_path, "bf16_file_path")


def test_names_may_be_any_iterable_that_is_not_empty() -> None:
    assert [entry.name for entry in parse_names(iter(("linear", "relu")), "bf16_ops")] == ["linear", "relu"]
    with pytest.raises(OpListError, match="`bf16_ops` must name at least one op"):
        parse_names([], "bf16_ops")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            "linear",
            r"`bf16_ops` must be a collection of op names such as .* got 'linear': pass a file as `bf16_file_path`",
        ),
        ([1], r"`bf16_ops` must contain op names, which are strings, got 1"),
    ],
)
def test_wrong_types_raise_type_error(names: list[str], message: str) -> None:
    """A single string is not split into characters."""
    with pytest.raises(TypeError, match=message):
        parse_names(names, "bf16_ops")


def _create(**arguments: Any) -> tuple[OpLists | None, str]:
    """Return the op lists and the message of an OpListError; other exceptions are not caught."""
    try:
        return OpLists.create(**arguments), ""
    except OpListError as error:
        return None, str(error)


_LINES = st.lists(
    st.one_of(
        st.sampled_from(["linear", "conv2d", "liner", "truediv", "div", "# text", "", "a b", "torch.add"]), st.text()
    ),
    max_size=6,
)


@given(
    content=st.one_of(st.binary(max_size=200), _LINES.map(lambda lines: "\n".join(lines).encode("utf-8", "replace")))
)
def test_any_content_is_valid_or_an_op_list_error(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The error names the file or the argument."""
    path = _write(tmp_path_factory.getbasetemp(), content)

    lists, message = _create(bf16_file_path=path, fp32_ops=["div"])

    assert lists or str(path) in message


@given(path=st.text(max_size=300))
def test_any_path_is_valid_or_an_op_list_error(path: str) -> None:
    lists, message = _create(bf16_file_path=path)

    assert lists or "`bf16_file_path`" in message or path in message

"""Tests of the op list parser."""

import contextlib
from pathlib import Path

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


@pytest.mark.parametrize("content", [b"", b"# nothing\n"], ids=["empty", "only a comment"])
def test_file_without_a_name_is_rejected(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(OpListError, match="`bf16_file_path` must name at least one op: leave the argument out"):
        parse_file(_write(tmp_path, content), "bf16_file_path")


def test_names_may_be_any_iterable_that_is_not_empty() -> None:
    assert [entry.name for entry in parse_names(iter(("linear", "relu")), "bf16_ops")] == ["linear", "relu"]
    with pytest.raises(OpListError, match="`bf16_ops` must name at least one op"):
        parse_names([], "bf16_ops")


def test_a_single_string_is_not_split_into_characters() -> None:
    with pytest.raises(TypeError, match=r"`bf16_ops` must be a collection .* got 'linear': pass a file as `bf16_file_"):
        parse_names("linear", "bf16_ops")


@given(content=st.one_of(st.binary(max_size=200), st.text().map(lambda text: text.encode("utf-8", "replace"))))
def test_any_content_is_valid_or_an_op_list_error(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = _write(tmp_path_factory.getbasetemp(), content)

    # Other errors are not caught.
    with contextlib.suppress(OpListError):
        OpLists.create(bf16_file_path=path)

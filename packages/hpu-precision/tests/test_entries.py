"""Op lists as users write them: what is read, and that every other file is one clear error."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpu_precision import OpListError, OpLists
from hpu_precision._entries import from_file, from_names


def _write(folder: Path, content: bytes) -> Path:
    path = folder / "ops.txt"
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
    ids=["plain", "no end of line", "CRLF", "CR", "blanks", "comments", "signature"],
)
def test_names_are_read(content: bytes, tmp_path: Path) -> None:
    """One name on each line; blanks, comments, line ends and an editor's signature do not matter."""
    entries = from_file(_write(tmp_path, content), "bf16_file_path")

    assert [entry.name for entry in entries] == ["linear", "conv2d"]


def test_an_entry_knows_its_line(tmp_path: Path) -> None:
    """A name is found again in the file, whatever stands between."""
    path = _write(tmp_path, b"# first\r\n\r\nlinear\r\n")

    assert [entry.place for entry in from_file(path, "bf16_file_path")] == [f"{path}, line 3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"linear\nconv2d relu\n", r"ops\.txt, line 2: .* must have one name in each place, .* got 'conv2d relu'"),
        (b"linear,\n", r"ops\.txt, line 1: .* got 'linear,'"),
        (b"linear\n\xff\n", r"ops\.txt, line 2: `bf16_file_path` must be a text file in UTF-8, got the byte 0xff"),
        (b"", r"`bf16_file_path` must name at least one op, and '.*ops\.txt' names none: leave the argument out"),
        (b"# nothing\n", r"`bf16_file_path` must name at least one op"),
        (b"x " * 100, r"got 'x x x .*\.\.\.'"),
        (b"x" * (1 << 20) + b"\n", r"is larger than 1 MiB"),
    ],
    ids=["two names", "comma", "no UTF-8", "empty", "only a comment", "long line", "large"],
)
def test_a_file_that_is_no_list_is_an_error(content: bytes, message: str, tmp_path: Path) -> None:
    """The error names the file, the line and what was found."""
    with pytest.raises(OpListError, match=message):
        from_file(_write(tmp_path, content), "bf16_file_path")


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """The error names the path and the folder that a relative one was looked for in."""
    with pytest.raises(OpListError, match=r"'nowhere\.txt' cannot be read from '.+': No such file or directory"):
        from_file("nowhere.txt", "bf16_file_path")


def test_an_unreadable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of somebody else's is an error with the system's reason."""
    path = _write(tmp_path, b"linear\n")

    # The tests may run as root, who may read everything.
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)

    with pytest.raises(OpListError, match=r"'.*ops\.txt' cannot be read from .*: Permission denied"):
        from_file(path, "bf16_file_path")


def test_a_folder_is_an_error(tmp_path: Path) -> None:
    """A folder in place of a file is said to be one."""
    with pytest.raises(OpListError, match=r"must be a text file with an op name on each line, and '.*' is a folder"):
        from_file(tmp_path, "bf16_file_path")


def test_a_pipe_is_an_error(tmp_path: Path) -> None:
    """Nobody waits for a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OpListError, match="is no regular file"):
        from_file(tmp_path / "pipe", "bf16_file_path")


def test_names_come_from_any_collection() -> None:
    """Tuples, sets and generators are lists, too."""
    assert [entry.name for entry in from_names((name for name in ("linear", "relu")), "bf16_ops")] == ["linear", "relu"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("linear", r"`bf16_ops` must be a collection of op names such as .* got 'linear'; a file .*`bf16_file_path`"),
        ([1], r"`bf16_ops` must hold op names, which are strings, got 1"),
    ],
)
def test_what_are_no_names_is_a_type_error(names: list[str], message: str) -> None:
    """A single string is not taken apart, and a number is no name."""
    with pytest.raises(TypeError, match=message):
        from_names(names, "bf16_ops")


def test_an_empty_collection_is_an_error() -> None:
    """An empty list would say nothing."""
    with pytest.raises(OpListError, match="`bf16_ops` must name at least one op"):
        from_names([], "bf16_ops")


def _made(**arguments: Any) -> tuple[OpLists | None, str]:
    """Return the lists, or the clear error that there is instead; every other error passes."""
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
def test_any_file_is_a_list_or_one_clear_error(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever a file holds, nothing but OpListError comes out, and it names the file or the argument."""
    path = _write(tmp_path_factory.getbasetemp(), content)

    lists, message = _made(bf16_file_path=path, fp32_ops=["div"])

    assert lists or str(path) in message


@given(path=st.text(max_size=300))
def test_any_path_is_a_list_or_one_clear_error(path: str) -> None:
    """Whatever a path is, nothing but OpListError comes out."""
    lists, message = _made(bf16_file_path=path)

    assert lists or "`bf16_file_path`" in message or path in message

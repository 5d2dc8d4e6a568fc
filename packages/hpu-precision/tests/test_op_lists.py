"""Tests of op lists: combination with the default lists, and errors."""

from pathlib import Path
from typing import Any

import pytest

from hpu_precision import OpListError, OpLists, default_op_lists


def test_default_lists_are_disjoint() -> None:
    lists = default_op_lists()

    # An empty string is HMP's default for a path.
    assert OpLists.create() == OpLists.create(bf16_file_path="", fp32_file_path="") == lists
    assert not lists.lower & lists.fp32
    assert not (lists.lower | lists.fp32) & lists.promote


def test_missing_list_is_the_default_without_the_given_ops() -> None:
    """Under all their names: "truediv" also removes "div" and "true_divide".

    Operators with several inputs in no list run in the widest dtype of their inputs, as with HMP.
    """
    lists = OpLists.create(bf16_ops=["linear", "log", "truediv"])

    assert {"linear", "log"} <= lists.lower
    assert lists.fp32 == default_op_lists().fp32 - {"log", "div", "truediv", "true_divide"}
    assert {"add", "mul", "cat"} <= OpLists.create(bf16_ops=["linear"], fp32_ops=["cross_entropy"]).promote


def test_ops_of_a_given_fp32_list_are_removed_from_the_default_bf16_list() -> None:
    """The user's list takes precedence, although the default lists prefer the lower precision."""
    lists = OpLists.create(fp32_ops=["softmax"])

    assert lists.lower == default_op_lists().lower - {"softmax"}


@pytest.mark.parametrize(
    "content",
    [
        b"linear\nrelu\n",
        b"linear\nrelu",
        b"linear\r\nrelu\r\n",
        b"linear\rrelu\r",
        b"\n\n  linear\t\n\nrelu\n\n",
        b"# matrices\nlinear # and vectors\nrelu\n",
        b"\xef\xbb\xbflinear\nrelu\n",
    ],
    ids=["plain", "no newline at end", "CRLF", "CR", "blanks", "comments", "byte order mark"],
)
def test_file_equals_names(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ops.txt"
    path.write_bytes(content)

    assert OpLists.create(fp32_file_path=path) == OpLists.create(fp32_ops=iter(("relu", "linear")))


def test_file_and_names_for_one_list_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"`bf16_ops` and `bf16_file_path` must not be given together, got \['linear"):
        OpLists.create(bf16_ops=["linear"], bf16_file_path="ops.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bf16_file_path": "linear\nsoftmx\n"}, r"`bf16_file_path` must have names of ops .*, got \['softmx'\]"),
        ({"bf16_file_path": "relu\nlinear\n", "fp32_ops": ["linear"]}, "in one list only, got 'linear' in both"),
        ({"bf16_ops": ["div"], "fp32_ops": ["truediv"]}, "in one list only, got 'div', 'truediv' in both"),
        ({"bf16_file_path": "# nothing\n"}, "`bf16_file_path` must name at least one op: leave the argument out"),
        ({"bf16_ops": []}, "`bf16_ops` must name at least one op"),
    ],
    ids=["unknown name", "in both lists", "in both under two names", "a file without a name", "no name"],
)
def test_invalid_names_are_rejected(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    """A path is given by the content of the file."""
    if "bf16_file_path" in options:
        (tmp_path / "ops.txt").write_text(options["bf16_file_path"])
        options = {**options, "bf16_file_path": tmp_path / "ops.txt"}

    with pytest.raises(OpListError, match=message):
        OpLists.create(**options)

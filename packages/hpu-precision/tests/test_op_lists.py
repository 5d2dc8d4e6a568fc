"""Op lists: what the user's replace, and what is refused."""

from pathlib import Path

import pytest

from hpu_precision import OpListError, OpLists, default_op_lists
from hpu_precision.op_lists import level_op_lists


def test_without_arguments_the_lists_are_the_default() -> None:
    """Nothing given, nothing changed."""
    assert OpLists.create() == default_op_lists()


def test_the_default_lists_do_not_overlap() -> None:
    """An op is in one list."""
    lists = default_op_lists()

    assert not lists.lower & lists.fp32
    assert not (lists.lower | lists.fp32) & lists.promote


def test_a_given_list_replaces_the_default_one() -> None:
    """The user's bf16 list is the whole list."""
    assert OpLists.create(bf16_ops=["linear", "relu"]).lower == {"linear", "relu"}


def test_the_other_list_stays_the_default() -> None:
    """What the user did not give stays, except for ops that the user named."""
    lists = OpLists.create(bf16_ops=["linear", "log"])

    assert lists.fp32 == default_op_lists().fp32 - {"log"}


def test_a_given_fp32_list_takes_from_the_default_bf16_list() -> None:
    """The user's word holds over the default lists, in which the lower precision goes first."""
    lists = OpLists.create(fp32_ops=["softmax"])

    assert lists.lower == default_op_lists().lower - {"softmax"}


def test_an_op_is_taken_by_whatever_name() -> None:
    """The default list's "div" and "truediv" are what the user calls "truediv"."""
    lists = OpLists.create(bf16_ops=["truediv"])

    assert not {"div", "truediv", "true_divide"} & lists.fp32


def test_what_no_list_has_is_promoted() -> None:
    """With both lists given, an op with several inputs that is in neither runs in the widest type, as HMP has it."""
    lists = OpLists.create(bf16_ops=["linear"], fp32_ops=["cross_entropy"])

    assert {"add", "mul", "cat"} <= lists.promote


def test_files_and_names_say_the_same(tmp_path: Path) -> None:
    """A list in a file equals the list in Python."""
    path = tmp_path / "ops.txt"
    path.write_text("linear\nrelu\n")

    assert OpLists.create(fp32_file_path=path) == OpLists.create(fp32_ops=["relu", "linear"])


def test_an_empty_path_is_the_default() -> None:
    """HMP's own default for a path is the empty one."""
    assert OpLists.create(bf16_file_path="", fp32_file_path="") == default_op_lists()


def test_a_list_is_given_in_one_way() -> None:
    """A file and names for the same list contradict each other."""
    with pytest.raises(ValueError, match=r"`bf16_ops` and `bf16_file_path` are two ways to give one list, got both"):
        OpLists.create(bf16_ops=["linear"], bf16_file_path="ops.txt")


def test_an_unknown_name_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    """The error names file and line, and what may have been meant."""
    path = tmp_path / "ops.txt"
    path.write_text("linear\nsoftmx\n")

    with pytest.raises(OpListError, match=r"ops\.txt, line 2: torch has no op called 'softmx', did you mean 'softmax'"):
        OpLists.create(bf16_file_path=path)


def test_an_unknown_name_like_no_other_is_an_error() -> None:
    """Without anything like it, no suggestion is made."""
    with pytest.raises(OpListError, match=r"`fp32_ops`: torch has no op called 'zzzzqqq'$"):
        OpLists.create(fp32_ops=["zzzzqqq"])


def test_an_op_in_both_lists_is_an_error(tmp_path: Path) -> None:
    """The error names both places."""
    path = tmp_path / "ops.txt"
    path.write_text("relu\nlinear\n")

    with pytest.raises(
        OpListError, match=r"in one list only, found 'linear' in .*line 2 \(bf16\) and `fp32_ops` \(fp3"
    ):
        OpLists.create(bf16_file_path=path, fp32_ops=["linear"])


def test_an_op_in_both_lists_by_two_names_is_an_error() -> None:
    """Two names of one operator are told to be one."""
    with pytest.raises(OpListError, match="'div' and 'truediv' are one in torch"):
        OpLists.create(bf16_ops=["div"], fp32_ops=["truediv"])


def test_the_first_level_is_the_default() -> None:
    """HMP's level O1 goes by lists."""
    assert level_op_lists("O1") == default_op_lists()


def test_the_second_level_is_matrices_and_convolutions() -> None:
    """At level O2 everything else that HMP knows runs in float32, `linear` with it."""
    lists = level_op_lists("O2")

    assert lists.lower == {
        *("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("addmm", "bmm", "dot", "mm", "mv"),
    }
    assert {"linear", "relu", "add", "softmax"} <= lists.fp32


def test_there_is_no_third_level() -> None:
    """The error names both."""
    with pytest.raises(ValueError, match="`opt_level` must be 'O1' or 'O2', got 'O3'"):
        level_op_lists("O3")

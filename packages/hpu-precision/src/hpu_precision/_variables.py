"""Telling a bridge that is not loaded yet which op lists autocast is to use: it reads two files when it is loaded."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hpu_core import bridge
from hpu_precision.op_lists import OpLists, bridge_names, in_words_of

# The second of each pair is what older releases call it.
LOWER: Final = ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST")
FP32: Final = ("PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST")


class _State:
    """What was told in this process."""

    lists: OpLists | None = None


def announce(lists: OpLists) -> None:
    """Have the bridge read these lists when it is loaded, here and in child processes.

    Does nothing where it is too late, or where the bridge is not known to understand any name of a list: an empty file
    would stand for its own list.

    Args:
        lists: The lists; names that the bridge is not known to understand are left out.
    """
    lower, fp32 = (in_words_of(bridge_names(), names) for names in (lists.lower, lists.fp32))
    # A name of the bridge's may stand for two operators, one in each list.
    fp32 -= lower
    if lists == _State.lists or bridge.is_loaded() or not lower or not fp32:
        return
    folder = Path(tempfile.mkdtemp(prefix="hpu-precision-"))
    # Until then, because children may load the bridge at any time.
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for variables, names in ((LOWER, lower), (FP32, fp32)):
        path = _written(folder / f"{variables[1].lower()}.txt", names)
        os.environ.update(dict.fromkeys(variables, path))
    _State.lists = lists


def announced() -> OpLists | None:
    """Return the lists that the bridge was told of, None where it was told of none and has its own."""
    return _State.lists


def _written(path: Path, names: Iterable[str]) -> str:
    path.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")
    return str(path)

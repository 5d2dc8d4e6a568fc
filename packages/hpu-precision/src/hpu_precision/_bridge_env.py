"""Environment variables with op lists for a bridge that is not loaded yet; it reads the two files when it is loaded."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

from hpu_core import bridge
from hpu_precision.op_lists import OpLists, bridge_op_names, translate_names, write_op_names

# The second name of each pair is that of older releases.
LOWER_VARIABLES: Final = ("PT_HPU_AUTOCAST_LOWER_PRECISION_OPS_LIST", "LOWER_LIST")
FP32_VARIABLES: Final = ("PT_HPU_AUTOCAST_FP32_OPS_LIST", "FP32_LIST")


class _State:
    """State of this process."""

    lists: OpLists | None = None


def export_op_lists(lists: OpLists) -> None:
    """Make the bridge use these op lists when it is loaded, in this process and in child processes.

    Does nothing if the bridge is already loaded, or if it is not known to accept any name of a list, because an empty
    file selects the bridge's own list.

    Args:
        lists: The op lists. Names that the bridge is not known to accept are left out.
    """
    lower, fp32 = (translate_names(bridge_op_names(), names) for names in (lists.lower, lists.fp32))
    # One of the bridge's names can denote two operators, one in each list.
    fp32 -= lower
    if lists == _State.lists or bridge.is_loaded() or not lower or not fp32:
        return
    directory = Path(tempfile.mkdtemp(prefix="hpu-precision-"))
    # Kept until exit, because a child process can load the bridge at any time.
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    for variables, names in ((LOWER_VARIABLES, lower), (FP32_VARIABLES, fp32)):
        path = write_op_names(directory / f"{variables[1].lower()}.txt", names)
        os.environ.update(dict.fromkeys(variables, path))
    _State.lists = lists


def exported_op_lists() -> OpLists | None:
    """Return the op lists that were exported; None if the bridge uses its own."""
    return _State.lists

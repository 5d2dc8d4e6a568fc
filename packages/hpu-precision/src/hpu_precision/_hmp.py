"""HMP, the mixed precision of SynapseAI up to 1.12, limited to a context manager.

HMP replaces functions of torch and casts in the whole process from then on. Here it casts only inside a context, as
autocast does, so optimizers, metrics and other Trainers in the process are not affected.
"""

import tempfile
from pathlib import Path
from types import ModuleType

from hpu_core import bridge, releases
from hpu_core.hmp import disable, load_hmp
from hpu_precision import _op_names
from hpu_precision.op_lists import OpLists, names_of


class _State:
    """State of this process."""

    lists: OpLists | None = None


def is_available() -> bool:
    """Return whether this machine's bridge has HMP, without loading it.

    The answer for a bridge that is not loaded depends on its release.
    """
    if bridge.is_loaded():
        return load_hmp() is not None
    version = bridge.plugin_version()
    try:
        release = None if version is None else releases.find(version)
    except ValueError:
        return False
    return release is not None and release.hmp is True


def convert(hmp: ModuleType, lists: OpLists) -> None:
    """Make HMP replace torch's functions by ones that cast by the op lists inside `hpu_core.hmp.casts(enabled=True)`.

    Names that HMP does not accept are left out. A RuntimeError is raised if HMP already uses other op lists.
    """
    if _State.lists == lists:
        return
    if _State.lists is not None:
        raise RuntimeError(
            "HMP accepts op lists once per process, and another plugin has already set different ones: use the same "
            "lists in both plugins, or another process"
        )
    lower = _names_of(lists.lower)
    with tempfile.TemporaryDirectory(prefix="hpu-precision-") as directory:
        # One of HMP's names can denote two operators, and HMP accepts a name in one list only.
        files = {Path(directory, "bf16.txt"): lower, Path(directory, "fp32.txt"): _names_of(lists.fp32) - lower}
        for path, names in files.items():
            path.write_text("\n".join(sorted(names)), encoding="utf-8")
        bf16_file, fp32_file = map(str, files)
        hmp.convert(opt_level="O1", bf16_file_path=bf16_file, fp32_file_path=fp32_file, isVerbose=False)
    _State.lists = lists
    disable(hmp)


def _names_of(names: frozenset[str]) -> frozenset[str]:
    """Return HMP's names for the operators of names."""
    operators = _op_names.operators_of(names)
    return frozenset(name for name in names_of("hmp") if _op_names.operators(name) & operators)

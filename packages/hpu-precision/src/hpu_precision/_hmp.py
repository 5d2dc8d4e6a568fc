"""HMP, the mixed precision of SynapseAI releases up to 1.12: lists in, and casts only where they are wanted.

HMP replaces functions of torch for the rest of the process and casts everywhere from then on. Here it casts inside a
context alone, as autocast does, so that optimizers, metrics and other Trainers of the process keep their types.
"""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import ModuleType

from hpu_core import bridge, releases
from hpu_precision.op_lists import OpLists, hmp_names, in_words_of


class _State:
    """What holds in this process."""

    lists: OpLists | None = None
    # HMP's context in which nothing is cast, while it is entered.
    disabled: AbstractContextManager[None] | None = None


def is_offered() -> bool:
    """Tell whether the bridge of this machine has HMP. Loads nothing and opens no card.

    A bridge that is not loaded is judged by its release.
    """
    if bridge.is_loaded():
        return bridge.hmp() is not None
    version = bridge.plugin_version()
    try:
        release = None if version is None else releases.find(version)
    except ValueError:
        return False
    return release is not None and release.hmp is True


def convert(hmp: ModuleType, lists: OpLists) -> None:
    """Have HMP replace torch's functions by such as cast by these lists, inside `casts(True)`.

    Args:
        hmp: The bridge's module.
        lists: The lists; what HMP does not know of them is not its business.

    Raises:
        RuntimeError: HMP has replaced them by other lists already.
    """
    if _State.lists == lists:
        return
    if _State.lists is not None:
        raise RuntimeError(
            "HMP takes op lists once in a process, and a plugin with other lists has used it already: use one set of "
            "lists, or another process"
        )
    lower = in_words_of(hmp_names(), lists.lower)
    with tempfile.TemporaryDirectory(prefix="hpu-precision-") as folder:
        paths = [
            _written(Path(folder, "bf16.txt"), lower),
            # A name of HMP's may stand for two operators of torch, and HMP takes it in one list only.
            _written(Path(folder, "fp32.txt"), in_words_of(hmp_names(), lists.fp32) - lower),
        ]
        hmp.convert(opt_level="O1", bf16_file_path=paths[0], fp32_file_path=paths[1], isVerbose=False)
    _State.lists = lists
    _disable(hmp)


@contextmanager
def casts(hmp: ModuleType, *, enabled: bool) -> Iterator[None]:
    """Have HMP cast inside the context, or not; afterwards it does as before."""
    before = _State.disabled is None
    _switch(hmp, enabled=enabled)
    try:
        yield
    finally:
        _switch(hmp, enabled=before)


def _written(path: Path, names: Iterable[str]) -> str:
    path.write_text("".join(f"{name}\n" for name in sorted(names)), encoding="utf-8")
    return str(path)


def _switch(hmp: ModuleType, *, enabled: bool) -> None:
    if enabled and _State.disabled is not None:
        # Left without an exception: HMP's context keeps casts off for good when one passes through it.
        _State.disabled.__exit__(None, None, None)
        _State.disabled = None
    elif not enabled and _State.disabled is None:
        _disable(hmp)


def _disable(hmp: ModuleType) -> None:
    _State.disabled = hmp.disable_casts()
    _State.disabled.__enter__()

"""What programs share: modules of the bridge, signatures, and forked processes."""

import inspect
import os
import select
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from hpu_core import bridge
from hpu_doctor.verify.assumption import SkippedError, returned_or_error

# The published sources of the bridge, 1.19.0; paths below python_packages/habana_frameworks/torch unless they start
# with backend/, habana_eager/, habana_kernels/, habana_lazy/, hpu_ops/, pytorch_helpers/ or scripts/.
BRIDGE: Final = "bridge 1.19.0: "


def module(name: str) -> Any:
    """Return a module of the bridge.

    Raises:
        SkippedError: This bridge has none.
    """
    found = bridge.optional_module(name)
    if found is None:
        raise SkippedError(f"this bridge has no module {name}")
    return found


def hpu() -> Any:
    """Return the bridge's module for devices, `torch.hpu`."""
    return module("hpu")


def core() -> Any:
    """Return the bridge's module `core`."""
    return module("core")


def compilations_of(work: Callable[[], object]) -> int:
    """Return how many graphs are compiled for what a call adds to the step."""
    core().mark_step()
    before = bridge.metric("graph_compilation")["TotalNumber"]
    work()
    core().mark_step()
    hpu().synchronize()
    return int(str(bridge.metric("graph_compilation")["TotalNumber"])) - int(str(before))


def parameters_of(function: Callable[..., object]) -> list[str]:
    """Return the names of a function's parameters.

    Raises:
        SkippedError: It is compiled, and does not say.
    """
    try:
        return [name for name in inspect.signature(function).parameters if name != "self"]
    except (TypeError, ValueError):
        raise SkippedError("the function is compiled and does not tell its parameters") from None


def opens_device(function: Callable[[], object]) -> bool:
    """Return whether a call opens the card, which is closed before."""
    if bridge.is_open():
        raise RuntimeError("the card is open already")
    function()
    return bridge.is_open()


def in_fork(function: Callable[[], object], *, seconds: float = 20.0) -> str:
    """Run a function in a forked child, and return its result or error as text."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        os.write(write, str(returned_or_error(function)).encode()[:4000])
        sys.stdout.flush()
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as result:
        text = result.read() if select.select([result], [], [], seconds)[0] else b""
    if not text:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return text.decode("utf-8", "replace") or f"no result: exit code {os.waitstatus_to_exitcode(status)}"


def with_variables(variables: Mapping[str, str | None], function: Callable[[], object]) -> object:
    """Call a function under environment variables, None for unset ones."""
    before = {name: os.environ.get(name) for name in variables}
    _set(variables)
    try:
        return function()
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

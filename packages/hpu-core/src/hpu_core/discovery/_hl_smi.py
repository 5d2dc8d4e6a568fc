"""Cards whose memory is in use according to Intel's command `hl-smi`."""
# hpu-doctor verify: hl-smi-lists-memory

import contextlib
import shutil
import subprocess
import tempfile
from typing import Final

from hpu_core.discovery._device import parse_int

_COMMAND: Final = "hl-smi"
_QUERY: Final = ("-Q", "module_id,memory.used,memory.total", "-f", "csv,noheader,nounits")
# It takes less than a second on a healthy machine, and may hang if the driver does.
_TIMEOUT_SECONDS: Final = 10.0
_KILL_SECONDS: Final = 1.0
_MAX_BYTES: Final = 1 << 20
# An idle Gaudi 2 reports 768 of 98304 MiB. The bridge's pool takes all memory by default
# (PT_HPU_POOL_MEM_ACQUIRE_PERC=100), so a device in use is expected to report far more.
_USED_SHARE: Final = 0.1


def used_modules(command: str = _COMMAND, timeout: float = _TIMEOUT_SECONDS) -> frozenset[int]:
    """Return the modules whose memory is in use according to `hl-smi`; none if it does not work. It starts a process.

    Args:
        command: Name or path of the command.
        timeout: Seconds after which it is killed.
    """
    modules = set()
    for line in _run(command, timeout).splitlines():
        match [parse_int(text) for text in line.split(",")]:
            case [int(module), int(used), int(total)] if used > total * _USED_SHARE:
                modules.add(module)
    return frozenset(modules)


def _run(command: str, timeout: float) -> str:
    """Return the output of the query, "" if the command is missing, fails or hangs."""
    path = shutil.which(command)
    if path is None:
        return ""
    # A file instead of a pipe: reading a pipe to its end would also wait for child processes that inherited it.
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(  # noqa: S603 - fixed arguments, no shell.
                [path, *_QUERY], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL
            )
        except OSError:
            return ""
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            # A process that hangs in the driver cannot be killed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILL_SECONDS)
            return ""
        output.seek(0)
        return "" if code else output.read(_MAX_BYTES).decode("utf-8", "replace")

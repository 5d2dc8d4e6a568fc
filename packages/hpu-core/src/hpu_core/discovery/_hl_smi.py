"""Devices that Intel's command `hl-smi` lists. It starts a process, so discovery uses it last and once per process."""

import contextlib
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import IO, Final, TypeAlias

from packaging.version import Version

from hpu_core.discovery import _hl_smi_text
from hpu_core.discovery._device import SourceResult, parse_int, printable

_COMMAND: Final = "hl-smi"
_result = functools.partial(SourceResult, source="hl-smi", location="the command hl-smi")

# It takes less than a second on a healthy machine, and may hang if the driver does.
_TIMEOUT_SECONDS = 10.0
_KILL_SECONDS = 1.0

_MAX_BYTES = 1 << 20
_MAX_REASON = 200

_USAGE_QUERY: Final = ("-Q", "module_id,memory.used,memory.total", "-f", "csv,noheader,nounits")
# An idle Gaudi 2 reports 768 of 98304 MiB. The bridge's pool takes all memory by default
# (PT_HPU_POOL_MEM_ACQUIRE_PERC=100), so a device in use is expected to report far more.
_USED_SHARE: Final = 0.1

# Runs hl-smi with arguments and returns its standard output.
Runner: TypeAlias = Callable[[tuple[str, ...]], str]


class HlSmiError(RuntimeError):
    """`hl-smi` is not installed, cannot be started, fails or times out; the message says which."""


def run(arguments: tuple[str, ...], command: str = _COMMAND, timeout: float = _TIMEOUT_SECONDS) -> str:
    """Run hl-smi and return its standard output."""
    path = shutil.which(command)
    if path is None:
        raise HlSmiError("not on PATH")
    # Files instead of pipes: reading a pipe to its end would also wait for child processes that inherited it.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - fixed arguments, no shell.
                [path, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        except OSError as error:
            raise HlSmiError(f"cannot be started: {error}") from error
        code = _wait(process, timeout)
        text = _read(output)
        if code != 0:
            reason = printable(_read(errors) or text)[:_MAX_REASON]
            raise HlSmiError(f"failed with exit code {code}: {reason or 'no output'}")
    return text


@functools.cache
def find(runner: Runner = run) -> SourceResult:
    """List the devices that hl-smi reports. Cached, because a hanging driver delays every call by the timeout."""
    try:
        devices = _hl_smi_text.parse_log(runner(("-L",)))
    except HlSmiError as error:
        return _result(message=str(error))
    if devices is None:
        return _result(message="its output has an unknown format")
    return _result(message=f"lists {len(devices)} cards", devices=devices)


@functools.cache
def release(runner: Runner = run) -> Version | None:
    """Return the SynapseAI release of hl-smi, None if it fails. The result is cached."""
    try:
        return _hl_smi_text.parse_version(runner(("-v",)))
    except HlSmiError:
        return None


def used_modules(runner: Runner = run) -> frozenset[int]:
    """Return the modules whose memory is in use according to `hl-smi`; none if it does not work."""
    try:
        lines = runner(_USAGE_QUERY).splitlines()
    except HlSmiError:
        return frozenset()
    modules = set()
    for line in lines:
        match [parse_int(text) for text in line.split(",")]:
            case [int(module), int(used), int(total)] if used > total * _USED_SHARE:
                modules.add(module)
    return frozenset(modules)


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int:
    """Wait for the process and return its exit code."""
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        process.kill()
        # A process that hangs in the driver cannot be killed.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
        raise HlSmiError(f"timed out after {timeout:g} seconds") from error


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_BYTES).decode("utf-8", "replace")

"""Cards as Intel's `hl-smi` lists them. Runs a process, so discovery asks it last. Opens no card."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import IO, Final, TypeAlias

from packaging.version import Version

from hpu_core.discovery import _hl_smi_text
from hpu_core.discovery._device import Finding, printable

_COMMAND: Final = "hl-smi"
_PLACE = "the command hl-smi"

# It answers within a second on a healthy machine; a driver in trouble can hold it for ever.
_TIMEOUT_SECONDS = 10.0
_KILL_SECONDS = 1.0

_MAX_BYTES = 1 << 20
_MAX_REASON = 200

# Takes the arguments of hl-smi and returns its standard output.
Runner: TypeAlias = Callable[[tuple[str, ...]], str]


class HlSmiError(RuntimeError):
    """`hl-smi` gave no answer; the text says why, as the end of a sentence about it."""


def run(arguments: tuple[str, ...], command: str = _COMMAND, timeout: float = _TIMEOUT_SECONDS) -> str:
    """Run hl-smi and return what it prints.

    Args:
        arguments: The command-line arguments.
        command: The name or path of the program.
        timeout: Seconds to wait for it.

    Raises:
        HlSmiError: It is not installed, cannot be started, fails or does not end in time.
    """
    path = shutil.which(command)
    if path is None:
        raise HlSmiError("it is not on PATH")
    # The output goes to a file and not to a pipe: waiting for the end of a pipe would also wait for whatever children
    # the program leaves behind with it.
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - fixed arguments, no shell.
                [path, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=errors
            )
        except OSError as error:
            raise HlSmiError(f"it cannot be started: {error}") from error
        code = _wait(process, timeout)
        text = _read(output)
        if code != 0:
            said = printable(_read(errors) or text)[:_MAX_REASON]
            raise HlSmiError(f"it failed with exit code {code}: {said or 'no output'}")
    return text


def find(runner: Runner = run) -> Finding:
    """List the cards that hl-smi knows, by its log (`-L`), else by its query (`-Q`), which does not tell the status.

    Args:
        runner: Runs hl-smi.
    """
    query = ("-Q", ",".join(_hl_smi_text.QUERY), "-f", "csv")
    try:
        devices = _hl_smi_text.read_log(runner(("-L",)))
        if devices is None:
            devices = _hl_smi_text.read_query(runner(query))
    except HlSmiError as error:
        return Finding(source="hl-smi", place=_PLACE, found=str(error))
    if devices is None:
        found = "what it prints is not understood"
        return Finding(source="hl-smi", place=_PLACE, found=found)
    return Finding(source="hl-smi", place=_PLACE, found=f"it lists {len(devices)} cards", devices=devices)


def release(runner: Runner = run) -> Version | None:
    """Return the SynapseAI release that hl-smi belongs to; None when it does not tell.

    Args:
        runner: Runs hl-smi.
    """
    try:
        return _hl_smi_text.read_version(runner(("-v",)))
    except HlSmiError:
        return None


def _wait(process: subprocess.Popen[bytes], timeout: float) -> int:
    """Wait for the process to end and return its exit code.

    Raises:
        HlSmiError: It did not end in time.
    """
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired as error:
        process.kill()
        # A process that hangs inside the driver cannot even be killed, and must not take this one with it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
        raise HlSmiError(f"it did not answer within {timeout:g} seconds") from error


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(_MAX_BYTES).decode("utf-8", "replace")

"""Cards and software of this machine, and the command `hpu-info` that reports on them. It opens no device."""

import argparse
import contextlib
import shutil
import sys

from hpu_core.__about__ import __version__
from hpu_core.command_line import COULD_NOT_RUN, FOUND, SUCCESS
from hpu_core.info.report import to_text
from hpu_core.info.system import BridgeInfo, LightningInfo, SystemInfo, collect

__all__ = [
    "BridgeInfo",
    "LightningInfo",
    "SystemInfo",
    "collect",
    "main",
]


def main() -> None:
    """Print the report, and exit with 0 if this process may use a card, with 1 if not and with 2 if it is unknown."""
    parser = argparse.ArgumentParser(
        prog="hpu-info",
        description="Show the Gaudi cards and the versions of the installed software.",
        epilog="It opens no card, so it can run during training. The exit code is 0 if there is a usable card, 1 if "
        "there is none, and 2 if that could not be found out. hpu-doctor finds what prevents training.",
    )
    parser.add_argument("--version", action="version", version=f"hpu-info, version {__version__}")
    parser.parse_args()
    try:
        # torch and the bridge may print while they are imported.
        with contextlib.redirect_stdout(sys.stderr):
            system = collect()
    except Exception as error:  # noqa: BLE001 - a tool for broken machines should not print a traceback.
        parser.exit(
            COULD_NOT_RUN,
            f"hpu-info: internal error: {type(error).__name__}: {error}. Please report it with the output of `hl-smi` "
            "and `pip list`.\n",
        )
    sys.stdout.write(f"{to_text(system, width=shutil.get_terminal_size().columns)}\n")
    sys.exit(SUCCESS if system.usable else FOUND)

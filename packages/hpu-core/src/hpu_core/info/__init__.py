"""The command `hpu-info`: a report on the Gaudi cards and the installed software. It opens no device."""

import contextlib
import json
import sys

import click
from rich.console import Console

from hpu_core.__about__ import __version__
from hpu_core.info._collect import SystemInfo, collect
from hpu_core.info._diagnose import Diagnosis, diagnose
from hpu_core.info._json import to_json
from hpu_core.info._render import render

__all__ = ["main"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON with stable keys.")
@click.version_option(__version__, prog_name="hpu-info")
def main(as_json: bool) -> None:
    """Show the Gaudi cards and the installed software, and diagnose why training cannot start.

    It opens no card, so it can run during training. The exit code is 0 if training can start and 1 otherwise.
    """
    # torch, the bridge and pyhlml may print while they are imported.
    with contextlib.redirect_stdout(sys.stderr):
        result = _collect_and_diagnose()
    if result is None:
        sys.exit(1)
    system, diagnosis = result
    if as_json:
        click.echo(json.dumps(to_json(system, diagnosis), indent=2))
    else:
        render(Console(highlight=False), system, diagnosis)
    sys.exit(0 if diagnosis.can_train else 1)


def _collect_and_diagnose() -> tuple[SystemInfo, Diagnosis] | None:
    try:
        system = collect()
        return system, diagnose(system)
    except Exception as error:  # noqa: BLE001 - a tool for broken machines should not print a traceback.
        message = (
            f"hpu-info: internal error: {type(error).__name__}: {error}. Please report it with the output of `hl-smi` "
            "and `pip list`."
        )
        click.echo(message, err=True)
        return None

"""The command `hpu-info`: reports on the Gaudi cards, the installed software and errors. It opens no device."""

import contextlib
import io
import json
import sys
from pathlib import Path
from typing import BinaryIO

import click
from rich.console import Console

from hpu_core.__about__ import __version__
from hpu_core.info import _explain
from hpu_core.info._collect import SystemInfo, collect
from hpu_core.info._diagnose import Diagnosis, diagnose
from hpu_core.info._json import to_json
from hpu_core.info._render import render, render_explanations

__all__ = ["main"]

_JSON = "Print the report as JSON with stable keys."


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help=_JSON)
@click.version_option(__version__, prog_name="hpu-info")
@click.pass_context
def main(context: click.Context, as_json: bool) -> None:
    """Show the Gaudi cards and the installed software, and diagnose why training cannot start.

    It opens no card, so it can run during training. The exit code is 0 if training can start and 1 otherwise.
    """
    if context.invoked_subcommand is not None:
        context.obj = as_json
        return
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


@main.command(short_help="Explain known errors in a text or a log.")
@click.argument("message", metavar="[TEXT|FILE]", required=False)
@click.option("--json", "as_json", is_flag=True, help=_JSON)
@click.pass_context
def explain(context: click.Context, message: str | None, as_json: bool) -> None:
    """Explain the known errors in TEXT, in a log FILE or, without either, on stdin: cause, cure and source of each.

    The most specific error is first. The exit code is 0 if there is one and 1 otherwise.
    """
    if message is None and sys.stdin.isatty():
        raise click.UsageError("TEXT or FILE must be given, or a log on stdin")
    with _open(message) as stream:
        explanations = _explain.explain(stream)
    if as_json or context.obj:
        click.echo(json.dumps(_explain.to_json(explanations), indent=2))
    elif explanations:
        render_explanations(Console(highlight=False), explanations)
    else:
        where = "on stdin" if message in {None, "-"} else f"in the {_kind(message)} {message!r}"
        click.echo(
            f"hpu-info: no known error {where}. Pass the whole log rather than its last line, and run "
            "`hpu-info doctor` for the state of this machine.",
            err=True,
        )
    sys.exit(0 if explanations else 1)


def _open(message: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if message is None or message == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if _kind(message) == "text":
        return io.BytesIO(message.encode("utf-8", "surrogateescape"))
    try:
        return Path(message).open("rb")
    except OSError as error:
        raise click.FileError(message, error.strerror) from error


def _kind(message: str | None) -> str:
    try:
        return "file" if message is not None and Path(message).exists() else "text"
    except (OSError, ValueError):
        # Too long or otherwise impossible for a path.
        return "text"


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

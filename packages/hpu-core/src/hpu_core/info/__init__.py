"""`hpu-info`: which cards and which software are here, and whether training can start on them. Opens no card."""

import contextlib
import json
import sys

import click
from rich.console import Console

from hpu_core.__about__ import __version__
from hpu_core.info._collect import Facts, collect
from hpu_core.info._judge import Verdict, judge
from hpu_core.info._render import render
from hpu_core.info._report import report

__all__ = ["main"]


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, with stable keys.")
@click.version_option(__version__, prog_name="hpu-info")
def main(as_json: bool) -> None:
    """Show the Gaudi cards and the software around them, what does not fit together, and what to do about it.

    Opens no card, so it can run beside a training. Exits with 0 when training can start and with 1 when it cannot.
    """
    # What torch, the bridge or pyhlml print while they are asked must not get between the lines of the report.
    with contextlib.redirect_stdout(sys.stderr):
        outcome = _examine()
    if outcome is None:
        sys.exit(1)
    facts, verdict = outcome
    if as_json:
        click.echo(json.dumps(report(facts, verdict), indent=2))
    else:
        render(Console(highlight=False), facts, verdict)
    sys.exit(0 if verdict.can_train else 1)


def _examine() -> tuple[Facts, Verdict] | None:
    """Collect and judge; None, with a line on stderr, when that itself fails."""
    try:
        facts = collect()
        return facts, judge(facts)
    except Exception as error:  # noqa: BLE001 - a tool for broken machines must not answer with a traceback.
        message = (
            f"hpu-info: a fault of hpu-info itself: {type(error).__name__}: {error}. Please report it with the output "
            "of `hl-smi` and `pip list`."
        )
        click.echo(message, err=True)
        return None

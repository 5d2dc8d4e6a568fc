"""The command `hpu-doctor`.

It opens no device, except for `hpu-doctor check-collectives` and `hpu-doctor verify`.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import click

from hpu_core.command_line import COULD_NOT_RUN, FOUND, SUCCESS, mark_json, write_json
from hpu_core.launcher_env import LauncherEnv, find_launcher_env
from hpu_doctor import checks, comparison, known_errors, text_report
from hpu_doctor.__about__ import __version__
from hpu_doctor.machine import collect_machine

__all__ = ["main"]

_STDOUT = 1
_STDERR = 2
_JSON = "Print the report as JSON, or write it to a file (--json=FILE)."


class _Group(click.Group):
    """Group of commands whose `--json` has a file only after an equals sign."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, those of the command included."""
        return super().parse_args(ctx, mark_json(args))


class _CouldNotRunError(click.ClickException):
    exit_code = COULD_NOT_RUN


def _json_option(text: str = _JSON) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option `--json`; a command also takes that which stands before its name."""
    return click.option(
        "--json", "json_to", metavar="[=FILE]", help=text, callback=lambda context, _, value: value or context.obj
    )


@click.group(cls=_Group, invoke_without_command=True)
@_json_option(f"{_JSON[:-1]}; that of one machine is one line.")
@click.version_option(__version__, prog_name="hpu-doctor")
@click.pass_context
def main(context: click.Context, json_to: str | None) -> None:
    """Check what training needs of this machine: cards, software, driver, limits, folders and network.

    Each problem comes with a fix. Run it with the environment of the job, for example by its launcher. It opens no
    card. The exit code is 0 if training can start, 1 if it cannot, and 2 if that could not be found out; other commands
    use them alike.
    """
    if context.invoked_subcommand is not None:
        context.obj = json_to
        return
    with _report_internal_error():
        machine = collect_machine()
        results = checks.run_checks(machine)
    if json_to:
        # One line, so that a launcher cannot mix the reports of several machines.
        _write(checks.to_json(machine, results), json_to, indent=None)
    else:
        click.echo(text_report.format_checks(machine, results))
    sys.exit(SUCCESS if checks.can_train(results) else FOUND)


@main.command(short_help="Compare machines by their reports.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.File("r", errors="replace"))
@_json_option()
def compare(files: tuple[TextIO, ...], json_to: str | None) -> None:
    """Compare the reports of `hpu-doctor --json` in FILEs, of one machine or more each.

    The exit code is 0 if nothing differs and training can start on each machine, and 1 otherwise.
    """
    report = comparison.compare([report for file in files for report in _read_reports(file)])
    _print(report, json_to, text_report.format_comparison)
    sys.exit(SUCCESS if report["can_train"] else FOUND)


@main.command(short_help="Explain known errors in a text or a log.")
@click.argument("message", metavar="[TEXT|FILE]", required=False)
@_json_option()
def explain(message: str | None, json_to: str | None) -> None:
    """Explain the known errors in TEXT, in a log FILE or, without either, on stdin: cause, cure and source of each.

    The most specific error is first. The exit code is 0 if there is one and 1 otherwise.
    """
    if message is None and sys.stdin.isatty():
        raise click.UsageError("TEXT or FILE must be given, or a log on stdin")
    with _open(message) as stream:
        explanations = known_errors.explain(stream)
    if json_to:
        _write(known_errors.to_json(explanations), json_to)
    elif explanations:
        click.echo(text_report.format_explanations(explanations))
    else:
        where = "on stdin" if message in {None, "-"} else f"in the {_kind(message)} {message!r}"
        click.echo(
            f"hpu-doctor: no known error {where}. Pass the whole log rather than its last line, and run "
            "`hpu-doctor` for the state of this machine.",
            err=True,
        )
    sys.exit(SUCCESS if explanations else FOUND)


@main.command("check-collectives", short_help="Check the collectives between ranks.")
@click.option("--mib", type=click.IntRange(1), default=16, show_default=True, help="Size of each rank's tensor in MiB.")
@click.option("--timeout", type=click.IntRange(1), default=120, show_default=True, help="Seconds for all collectives.")
@_json_option()
def check_collectives(mib: int, timeout: int, json_to: str | None) -> None:
    """Check all-reduce, all-gather, reduce-scatter and the link between each two ranks: values and time.

    Start it as the ranks of a job by srun, mpirun or torchrun, on one machine by `torchrun --nproc-per-node=8
    --no-python hpu-doctor check-collectives`. It opens the cards, so they must be free. The exit code is 1 if values
    are wrong or a rank does not finish, and 0 otherwise.
    """
    env = _find_launcher_env()
    with _report_internal_error(), _stdout_on_stderr():
        # Here, because torch may fail or print while it is imported.
        from hpu_doctor.collectives import check

        report = check.run_rank(env, mib=mib, timeout=timedelta(seconds=timeout))
    if report is not None:
        _print(report, json_to, text_report.format_collectives)
    sys.stdout.flush()
    # A collective that hangs in a thread would keep the process.
    os._exit(0 if report is None or report["ok"] else 1)


@main.command(short_help="Try what these packages assume about cards.")
@click.option(
    "--out",
    "folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the report, new or empty.",
)
@click.option(
    "--all-cards", "all_devices", is_flag=True, help="Try the collectives as well, on all cards of this machine."
)
@click.option("--only", "names", multiple=True, metavar="ID", help="Try this assumption only. Repeatable.")
@_json_option(f"{_JSON[:-1]}; the folder has it anyway.")
def verify(folder: Path, all_devices: bool, names: tuple[str, ...], json_to: str | None) -> None:
    """Try what these packages assume about cards, and write a report to attach to an issue.

    Each assumption has a program, which runs in a process of its own with a limit of time, one at a time. It opens a
    card, which must be free. Nothing is written outside the folder of the report, and the report names no
    machine, user, path or serial number. The exit code is 0 if all that was tried holds, and 1 otherwise or
    if the run was interrupted.
    """
    # First, because importing torch and the bridge sets variables, whose defaults the programs look at.
    environ = dict(os.environ)
    from hpu_doctor.verify import command

    with _report_internal_error():
        try:
            report = command.run(command.choose(names), folder, environ, all_devices=all_devices)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        except command.NoCardError as error:
            raise _CouldNotRunError(str(error)) from error
        except OSError as error:
            raise _CouldNotRunError(f"{folder}: {error.strerror}") from error
    if json_to:
        _write(report, json_to)
    else:
        click.echo(f"{command.summarize(report)}\nreport: {folder / 'report.txt'}")
    sys.exit(1 if report["counts"]["differs"] or not command.is_complete(report) else 0)


@main.command(short_help="Find what a program for CUDA has to change.")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
@click.option("--fix", is_flag=True, help="Change what keeps its meaning; the files are overwritten.")
@_json_option()
def migrate(paths: tuple[Path, ...], fix: bool, json_to: str | None) -> None:
    """Find the CUDA idioms in FILEs or folders.

    Each line comes with what to write instead; nothing of the program is run. The exit code is 0 if there is none, or
    none is left, 1 if there is, and 2 if a file is no Python.
    """
    from hpu_doctor.migrate import program

    try:
        files = program.find_files(paths)
        before = sum(len(source.usages) for source in files)
        if fix:
            fixed = [program.fix(source) for source in files]
            for old, new in zip(files, fixed, strict=True):
                if old.text != new.text:
                    program.write(new)
            files = fixed
    except (program.SourceFileError, OSError) as error:
        raise _CouldNotRunError(str(error)) from error
    left = sum(len(source.usages) for source in files)
    if json_to:
        _write(program.to_json(files, before - left), json_to)
    else:
        click.echo(text_report.format_migration(files, before - left, fix=fix))
    sys.exit(FOUND if left else SUCCESS)


@contextlib.contextmanager
def _stdout_on_stderr() -> Iterator[None]:
    """Have what libraries print on stdout, such as gloo, stay out of the report."""
    sys.stdout.flush()
    stdout = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, _STDOUT)
        os.close(stdout)


def _find_launcher_env() -> LauncherEnv:
    try:
        env = find_launcher_env()
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if env is None:
        raise click.UsageError(
            "check-collectives needs the ranks of a job: start it by srun, mpirun or torchrun, for example `torchrun "
            "--nproc-per-node=8 --no-python hpu-doctor check-collectives`"
        )
    return env


def _print(report: Mapping[str, Any], json_to: str | None, format_text: Callable[[Mapping[str, Any]], str]) -> None:
    if json_to:
        _write(report, json_to)
    else:
        click.echo(format_text(report))


def _read_reports(file: TextIO) -> list[dict[str, Any]]:
    try:
        return comparison.parse_reports(file.read())
    except ValueError as error:
        raise click.UsageError(f"{file.name}: {error}") from error


def _open(message: str | None) -> contextlib.AbstractContextManager[BinaryIO]:
    if message is None or message == "-":
        return contextlib.nullcontext(sys.stdin.buffer)
    if _kind(message) == "text":
        return io.BytesIO(message.encode("utf-8", "surrogateescape"))
    try:
        return Path(message).open("rb")
    except OSError as error:
        raise _CouldNotRunError(f"{message}: {error.strerror}") from error


def _kind(message: str | None) -> str:
    try:
        return "file" if message is not None and Path(message).exists() else "text"
    except (OSError, ValueError):
        # Too long or otherwise impossible for a path.
        return "text"


@contextlib.contextmanager
def _report_internal_error() -> Iterator[None]:
    """Exit with a message instead of a traceback if the body fails, and redirect what it prints to stderr."""
    try:
        # torch and the bridge may print while they are imported.
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except click.ClickException:
        raise
    except Exception as error:  # noqa: BLE001 - a tool for broken machines should not print a traceback.
        message = (
            f"hpu-doctor: internal error: {type(error).__name__}: {error}. Please report it with the output of "
            "`hl-smi` and `pip list`."
        )
        click.echo(message, err=True)
        sys.exit(COULD_NOT_RUN)


def _write(report: Mapping[str, Any], to: str, *, indent: int | None = 2) -> None:
    try:
        write_json(report, to, indent=indent)
    except OSError as error:
        raise _CouldNotRunError(f"{to}: {error.strerror}") from error

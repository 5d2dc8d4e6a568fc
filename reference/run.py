"""Run every code block of documents word for word on simulated cards, and print a table of what came of each.

    python reference/run.py FOLDER [--only TEXT]

Nothing is reduced but data and epochs. A block that names 8 devices trains with 8 processes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import documents
import programs
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parent / "examples"
_HPU_SIM: Final = Path(sys.executable).with_name("hpu-sim")
# What a block may take.
SECONDS: Final = 600
# What a rank's report begins with, as fixtures.py writes it.
_MARK: Final = "reference "

_STATES: Final = {True: "passed", False: "FAILED", None: "not run"}

# Commands that are not run, by how they begin, and why.
NOT_RUN: Final = {
    "pip install": "installs the archived package that these packages replace",
    "python -um pip install": "installs tools for looking at traces",
    "tensorboard": "starts a server, which no block waits for",
    "MASTER_ADDR": "run with the block that it starts",
}


@dataclass(frozen=True)
class Outcome:
    """What came of a program, or of a block that was not run.

    Attributes:
        block: The block.
        good: Whether it did what the document says; None where it was not run.
        words: What it did, or why not.
        seconds: How long it took.
    """

    block: documents.Block
    good: bool | None
    words: str
    seconds: float = 0.0


def run(program: programs.Program, place: Path) -> Outcome:
    """Run a program on machines of its own.

    Args:
        program: The program.
        place: The folder that it runs in.
    """
    begin = time.monotonic()
    with ExitStack() as stack:
        (place / "block.py").write_text(program.text, encoding="utf-8")
        port = _free_port()
        running = []
        for number, node in enumerate(program.nodes):
            variables = {
                name: value.replace("<MASTER_ADDR>", "127.0.0.1").replace("<MASTER_PORT>", str(port))
                for name, value in node.items()
            }
            log = stack.enter_context((place / f"log-{number}").open("w+", encoding="utf-8"))
            command = [str(_HPU_SIM), "run", "--quiet", "--devices", str(program.cards), "block.py"]
            running.append(
                subprocess.Popen(  # noqa: S603 - the program is the document's, which is what is asked for.
                    command,
                    cwd=place,
                    env=variables_of(place / f"cards-{number}", program.framework) | variables,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        codes = [wait(process, begin + SECONDS) for process in running]
        logs = [(place / f"log-{number}").read_text(encoding="utf-8") for number in range(len(running))]
    return _judge(program, codes, logs, time.monotonic() - begin)


def variables_of(cards: Path, framework: str) -> dict[str, str]:
    """Return the environment of a block.

    Args:
        cards: A folder of its own for the cards that are taken.
        framework: "lightning" or "pytorch_lightning".
    """
    return os.environ | {
        "HPU_SIM_RUNTIME_DIR": str(cards),
        "OMP_NUM_THREADS": "1",
        "PL_TRAINER_MAX_EPOCHS": "1",
        "PYTHONPATH": str(HERE),
        "REFERENCE_FRAMEWORK": framework,
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait(process: subprocess.Popen[bytes], deadline: float) -> int:
    """Wait for a program and end all of its processes.

    Args:
        process: The first of them, in a session of its own.
        deadline: When they are ended in any case, by the monotonic clock, in seconds.

    Returns:
        Its exit code, negative for a signal.
    """
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return -signal.SIGALRM
    finally:
        # Its ranks are processes of its group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _judge(program: programs.Program, codes: list[int], logs: list[str], seconds: float) -> Outcome:
    if any(codes):
        return Outcome(program.block, good=False, words=f"exit codes {codes}:\n" + "\n".join(logs), seconds=seconds)
    lines = [line for log in logs for line in log.splitlines() if line.startswith(_MARK)]
    reports = [json.loads(line.removeprefix(_MARK)) for line in lines]
    kinds = {f"{each['strategy']}, {each['precision']}, {each['ranks']} rank(s), on {each['on']}" for each in reports}
    # Each rank reports, has trained, and has done so on a card unless the block has asked for none.
    whole = bool(reports) and len(reports) == reports[0]["ranks"] == program.cards * len(program.nodes)
    trained = all(each["steps"] > 0 and each["on"] == "hpu" for each in reports)
    return Outcome(
        program.block, good=whole and trained, words="; ".join(sorted(kinds)) or "no rank reported", seconds=seconds
    )


def outcomes(folder: Path, only: str) -> Iterator[Outcome]:
    """Run the blocks of all documents in a folder whose title or document contains a text.

    Args:
        folder: Where the documents are.
        only: The text.
    """
    for path in sorted(path for path in folder.iterdir() if path.suffix in {".rst", ".md", ".txt"}):
        blocks = documents.read(path)
        commands = [block for block in blocks if block.language == "bash"]
        for block in blocks:
            if only not in f"{block.document} {block.title}":
                continue
            if block.language == "python":
                for program in programs.of_block(block, commands):
                    with tempfile.TemporaryDirectory(prefix="reference-") as place:
                        for name in ("ops_bf16_mnist.txt", "ops_fp32_mnist.txt"):
                            shutil.copy(EXAMPLES / name, place)
                        yield run(program, Path(place))
            else:
                reason = next((why for start, why in NOT_RUN.items() if block.text.startswith(start)), None)
                yield Outcome(block, None if reason else False, reason or "nobody has said what this command is for")


def main() -> int:
    """Run the blocks.

    Returns:
        0, or 1 when one of them failed.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the documents are")
    parser.add_argument("--only", default="", metavar="TEXT", help="run blocks whose document or title contains it")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"FOLDER must be a folder with documents, got {str(options.folder)!r}")

    return report(outcomes(options.folder, options.only))


def report(running: Iterator[Outcome]) -> int:
    """Print what comes of blocks while they run, and a table in the end.

    Args:
        running: What comes of them.

    Returns:
        0, or 1 when one of them failed, or there was none.
    """
    console = Console()
    done = []
    # Whoever ends this ends the processes of the block that is running, too: Python unwinds, and `wait` sees to it.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    for outcome in running:
        done.append(outcome)
        block, state = outcome.block, _STATES[outcome.good]
        place = f"{state} {block.document}:{block.line} {block.title}"
        if outcome.good is None:
            place += f": {outcome.words}"
        console.print(place, markup=False, highlight=False, soft_wrap=True)
        if outcome.good is False:
            console.print(outcome.words, markup=False, highlight=False, soft_wrap=True)
    table = Table(title=f"Lightning {importlib.metadata.version('lightning')}, simulated cards")
    for heading in ("document", "line", "block", "result", "what it did", "s"):
        table.add_column(heading)
    for each in done:
        words = Text(next(iter(each.words.splitlines()), ""))
        seconds = f"{each.seconds:.0f}"
        title = Text(each.block.title)
        table.add_row(each.block.document, str(each.block.line), title, _STATES[each.good], words, seconds)
    console.print(table)
    return 1 if not done or any(each.good is False for each in done) else 0


if __name__ == "__main__":
    sys.exit(main())

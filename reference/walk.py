"""Run every code block of this repository's own documents word for word, and print a table of what came of each.

    python reference/walk.py [--only TEXT]

Each document is walked through in a copy of the repository, block by block, as a reader would: what one block writes,
the next one finds. `pages` says how a document keeps a block from being run. A reader has a script `train.py`, which is
the one that the start page shows, and lists of operations. A document that installs something has an environment of its
own. Nothing is reduced but data and epochs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pages
import programs
from missing import LEFT_OUT_HERE, MISSING
from run import SECONDS, Outcome, report, run, variables_of, wait

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent
# What readers are said to have, by its name.
GIVEN: Final = {
    "train.py": ROOT / "docs" / "start" / "train.py",
    "ops_bf16.txt": ROOT / "examples" / "ops_bf16_mnist.txt",
    "ops_fp32.txt": ROOT / "examples" / "ops_fp32_mnist.txt",
}
DOCUMENTS: Final = ("*.md", "packages/*/README.md", "packages/*/docs/*.md", "docs/**/*.md")
_SHOWN_LINES: Final = 60
# What is not of the repository, or no reader looks into; hidden files are left out, too.
_LEFT: Final = shutil.ignore_patterns(".*", "__pycache__", "_build", "dist", "lightning_logs", "*.egg-info")
_HERE_MISSING: Final = {**MISSING, **LEFT_OUT_HERE}


class Walk:
    """A document on its way through.

    Args:
        place: An empty folder for it.
        installs: Whether it installs something.
    """

    def __init__(self, place: Path, *, installs: bool) -> None:
        self.place = place / "checkout"
        shutil.copytree(ROOT, self.place, ignore=_LEFT)
        for name, source in GIVEN.items():
            shutil.copy(source, self.place / name)
        self.cards = place / "cards"
        self.cards.mkdir()
        self.scripts = Path(sys.executable).parent
        self.python = Path(sys.executable)
        if installs:
            self._make_environment(place / "environment")
        self.printed = ""

    def _make_environment(self, folder: Path) -> None:
        """Make an environment that has what this one has, until something is installed over it."""
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)  # noqa: S603 - our own arguments.
        self.scripts, self.python = folder / "bin", folder / "bin" / "python"
        below = sysconfig.get_path("purelib")
        (site,) = folder.glob("lib/python*/site-packages")
        # A path file may import, and this way the path files of the environment below count as well.
        (site / "below.pth").write_text(f"import site; site.addsitedir({below!r})\n", encoding="utf-8")

    def take(self, step: pages.Step) -> Outcome:
        """Do with a block what becomes of it.

        Args:
            step: The block.
        """
        block = step.block
        if step.fate == "not run":
            return Outcome(block, good=None, words=step.words)
        if step.fate == "file":
            path = self.place / step.words
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
            return Outcome(block, good=True, words=f"written to {step.words}")
        if step.fate == "output":
            good = pages.is_shown(step, self.printed)
            return Outcome(block, good=good, words="as printed" if good else f"printed was:\n{_end(self.printed)}")
        if step.fate == "shell":
            shell = ("bash", "-euo", "pipefail", "-c", block.text)
            variables = {} if step.cards is None else {"HPU_SIM_DEVICES": str(step.cards)}
            return self._run(step, shell, variables)
        return self._run_python(step)

    def _run_python(self, step: pages.Step) -> Outcome:
        training = programs.of_block(step.block, [], _HERE_MISSING)
        if training:
            words = []
            for program in training:
                outcome = run(replace(program, cards=step.cards or program.cards), self.place)
                if not outcome.good:
                    return outcome
                words.append(outcome.words)
            return replace(outcome, words="; ".join(words))
        framework = programs.framework_of(step.block)
        before = programs.left_out(step.block.text, framework, _HERE_MISSING)
        (self.place / "block.py").write_text("\n".join([*before, step.block.text]), encoding="utf-8")
        # A block that starts the simulator itself starts with none.
        starts = "hpu_sim.activate(" in step.block.text
        machine = (str(self.python),) if starts else ("hpu-sim", "run", "--quiet", "--devices", str(step.cards or 1))
        return self._run(step, (*machine, "block.py"), {})

    def _run(self, step: pages.Step, command: tuple[str, ...], variables: dict[str, str]) -> Outcome:
        begin = time.monotonic()
        path = os.pathsep.join([str(self.scripts), str(Path(sys.executable).parent), os.environ["PATH"]])
        own = variables_of(self.cards, programs.framework_of(step.block)) | variables | {"PATH": path, "COLUMNS": "100"}
        with (self.place.parent / "log").open("w+", encoding="utf-8") as log:
            process = subprocess.Popen(  # noqa: S603 - the program is the document's, which is what is asked for.
                command, cwd=self.place, env=own, stdout=log, stderr=log, start_new_session=True
            )
            code = wait(process, begin + SECONDS)
            log.seek(0)
            self.printed = log.read()
        words = f"exit code {code}" if code == 0 else f"exit code {code}, after:\n{_end(self.printed)}"
        return Outcome(step.block, good=code == 0, words=words, seconds=time.monotonic() - begin)


def _end(printed: str) -> str:
    """Return the last lines of what was printed, among which the reason for a failure is."""
    return "\n".join(printed.splitlines()[-_SHOWN_LINES:])


def outcomes(root: Path, only: str) -> Iterator[Outcome]:
    """Walk through all documents whose path contains a text.

    Args:
        root: The repository.
        only: The text.

    Raises:
        PageError: A document has a block that nothing runs and nobody has explained; no block has been run by then.
    """
    found = sorted({path for pattern in DOCUMENTS for path in root.glob(pattern) if "_build" not in path.parts})
    plans = [pages.plan(path, root) for path in found if only in str(path.relative_to(root))]
    for steps in plans:
        if not any(step.fate in {"python", "shell"} for step in steps):
            yield from (Outcome(step.block, good=None, words=step.words) for step in steps)
            continue
        with tempfile.TemporaryDirectory(prefix="walk-") as folder:
            installs = any(re.search(r"\bpip install\b", s.block.text) for s in steps if s.fate == "shell")
            walk = Walk(Path(folder), installs=installs)
            for step in steps:
                yield walk.take(step)


def main() -> int:
    """Walk through the documents.

    Returns:
        0, or 1 when a block failed or is not explained.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="walk through documents whose path contains it")
    options = parser.parse_args()
    try:
        return report(outcomes(ROOT, options.only))
    except pages.PageError as error:
        print(error)
        return 1


if __name__ == "__main__":
    sys.exit(main())

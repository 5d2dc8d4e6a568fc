"""Programs and tests of other projects, run on simulated cards, and what fails beside what failed last time.

``python tools/upstream.py FOLDER ...`` runs each folder: with pytest if it has test files, else each of its scripts.
The folders are clones or copies of, for example, Lightning's tests and examples. Their requirements must be installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_RUN: Final = (str(Path(sys.executable).with_name("hpu-sim")), "run", "--quiet", "--devices", "2")
_PYTEST: Final = ("-m", "pytest", "-p", "no:cacheprovider", "-W", "default", "--continue-on-collection-errors")


def run_folder(folder: Path, timeout: float) -> dict[str, str]:
    """Run the tests or the scripts of a folder.

    Args:
        folder: Folder with test files, or with scripts.
        timeout: Seconds that one script may take; the tests of a folder have their own limits.

    Returns:
        The error's line by test or script, "" for those that pass. Skipped tests are left out.

    Raises:
        FileNotFoundError: The folder has no Python file, or its tests could not be started.
    """
    if next(folder.rglob("test_*.py"), None) is not None:
        return _run_tests(folder)
    scripts = sorted(file for file in folder.rglob("*.py") if "__main__" in file.read_text(encoding="utf-8"))
    if not scripts:
        raise FileNotFoundError(f"{str(folder)!r} must have test files, or scripts with a `__main__` block, got none")
    return {str(script.relative_to(folder)): _run_script(script, timeout) for script in scripts}


def compare(now: dict[str, str], last: dict[str, str]) -> tuple[list[str], bool]:
    """Return a line for each test that fails now or failed last time, and whether one fails that passed."""
    lines, is_worse = [], False
    for name in sorted(now.keys() | last.keys()):
        error, earlier = now.get(name), last.get(name)
        if error:
            is_worse |= earlier == ""
            state = "fails, new" if earlier is None else "fails, as last" if earlier else "fails, passed last time"
            lines.append(f"{state:<24} {name}: {error}")
        elif earlier:
            lines.append(f"{'is gone' if error is None else 'passes':<8}, failed last    {name}: {earlier}")
    return lines, is_worse


def _run_tests(folder: Path) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary, "report.xml")
        done = subprocess.run([*_RUN, *_PYTEST, f"--junitxml={report}", str(folder)], cwd=folder, check=False)  # noqa: S603 - a maintainer names the folder.
        if not report.exists():
            raise FileNotFoundError(f"pytest ended with exit code {done.returncode} and no report in {str(folder)!r}")
        cases = ET.parse(report).getroot().iter("testcase")  # noqa: S314 - pytest has written it.
        results = {}
        for case in cases:
            errors = [*case.iter("failure"), *case.iter("error")]
            if errors or case.find("skipped") is None:
                # pytest's message begins with the exception; what the test has compared follows.
                message = (errors[0].get("message", "").splitlines() or ["no message"])[0] if errors else ""
                results[f"{case.get('classname')}::{case.get('name')}"] = message
    return results


def _run_script(script: Path, timeout: float) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - as above.
            [*_RUN, str(script)], cwd=script.parent, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {timeout:g} s"
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1] if done.returncode else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the folders of the command line, and return 1 if something fails that passed last time."""
    parser = argparse.ArgumentParser(description="Run programs of other projects on simulated cards.")
    parser.add_argument("folders", nargs="+", type=Path, help="folders with tests, or with scripts")
    parser.add_argument("--results", type=Path, default=Path(".upstream.json"), help="file with the last results")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds that a script may take (300)")
    options = parser.parse_args(arguments)
    last = json.loads(options.results.read_text(encoding="utf-8")) if options.results.exists() else {}
    is_worse = False
    for folder in options.folders:
        now = run_folder(folder.resolve(), options.timeout)
        lines, worse = compare(now, last.get(folder.name, {}))
        is_worse |= worse
        failed = sum(map(bool, now.values()))
        print("\n".join([*lines, f"{folder.name}: {len(now) - failed} passed, {failed} failed"]), flush=True)
        last[folder.name] = now
        # After each folder, because one takes long.
        options.results.write_text(json.dumps(last, indent=1), encoding="utf-8")
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())

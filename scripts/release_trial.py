"""Try releases end to end: release packages in a clone, publish them to an index on this machine, and live with them.

hpu-core is released, then hpu-ddp with a floor that only the second hpu-core fulfils, and refused before that. A fresh
environment installs hpu-ddp from the index, everything else from the indexes that pip is configured with, and trains a
step on two simulated cards. hpu-core is then upgraded under it, downgraded to the floor and below it.

The checkout itself is only read, and what is not committed there takes no part. `nox -s release_trial` calls this.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import venv
from dataclasses import dataclass
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pypiserver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parent.parent
OURS = ("hpu-core", "hpu-ddp", "hpu-sim")
# One training step on each of two cards, and which hpu-core took it.
TRAINING = """
import hpu_core
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel

if __name__ == "__main__":
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = Trainer(accelerator="hpu", devices=2, strategy="hpu_ddp", max_steps=1, limit_val_batches=0, **quiet)
    trainer.fit(BoringModel())
    if trainer.is_global_zero:
        print(f"trained {trainer.global_step} step on {trainer.world_size} cards with hpu-core {hpu_core.__version__}")
"""


class TrialError(RuntimeError):
    """Something did not go as a release should."""


class ThreadingServer(ThreadingMixIn, WSGIServer):
    """Serves pip's and twine's connections beside each other."""

    daemon_threads = True


class QuietHandler(WSGIRequestHandler):
    """Serves without a line per request."""

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def package_index(folder: Path) -> Iterator[str]:
    """Serve a package index from a folder, on a free port of this machine.

    Yields:
        Its address.
    """
    # Everybody may publish. Without the fallback a package that is not there is asked of the configured indexes alone.
    options = {"roots": [folder], "authenticate": [], "password_file": ".", "disable_fallback": True}
    application = pypiserver.app(**options)
    with make_server("127.0.0.1", 0, application, ThreadingServer, QuietHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def run(*command: str, cwd: Path, succeeds: bool = True, environment: Mapping[str, str] | None = None) -> str:
    """Run a command, show its last lines, and give everything that it printed.

    Args:
        command: The command.
        cwd: Where.
        succeeds: Whether it must succeed; otherwise it must fail.
        environment: More variables.

    Raises:
        TrialError: If it does not end as it must.
    """
    # No proxy stands between this machine and itself.
    nearby = ",".join(filter(None, (os.environ.get("no_proxy", os.environ.get("NO_PROXY")), "127.0.0.1")))
    variables = os.environ | {"no_proxy": nearby, "NO_PROXY": nearby, **(environment or {})}
    done = subprocess.run(  # noqa: S603 - our own words.
        command, cwd=cwd, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if (done.returncode == 0) is not succeeds:
        raise TrialError(f"{command} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def found(pattern: str, printed: str) -> str:
    """Give the line of an output that matches a pattern.

    Raises:
        TrialError: If none does.
    """
    line = re.search(f"^{pattern}$", printed, re.MULTILINE)
    if line is None:
        raise TrialError(f"a line must match {pattern!r}:\n{printed}")
    return line[0].strip()


@dataclass(frozen=True)
class Maintainer:
    """Who makes releases.

    Attributes:
        clone: A clone of the repository.
        index: The address of the index.
        environments: Where nox keeps its environments.
    """

    clone: Path
    index: str
    environments: Path

    def git(self, *arguments: str) -> str:
        """Run git in the clone."""
        return run("git", *arguments, cwd=self.clone).strip()

    def nox(self, session: str, *arguments: str, succeeds: bool = True) -> str:
        """Run a session in the clone."""
        command = (sys.executable, "-m", "nox", "--envdir", str(self.environments), "-s", session, "--", *arguments)
        return run(*command, cwd=self.clone, succeeds=succeeds)

    def edit(self, path: str, old: str, new: str) -> None:
        """Replace a text in a file of the clone, or make the file where there is no old text.

        Raises:
            TrialError: If the file has no such text.
        """
        file = self.clone / path
        before = file.read_text(encoding="utf-8") if old else ""
        if old not in before:
            raise TrialError(f"{path} must contain {old!r}: this trial is out of date")
        file.write_text(before.replace(old, new) if old else new, encoding="utf-8")

    def range(self, sibling: str, versions: str) -> None:
        """Change which versions of siblings the packages require.

        Args:
            sibling: A pattern of the siblings' names, in a group.
            versions: The range.
        """
        for file in self.clone.glob("packages/*/pyproject.toml"):
            text = file.read_text(encoding="utf-8")
            file.write_text(re.sub(f'"{sibling}>=[^"]+"', rf'"\1{versions}"', text), encoding="utf-8")

    def commit(self, message: str) -> None:
        """Commit every change."""
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def refuse(self, package: str, wanted: str, reason: str) -> None:
        """Ask for a release that must be refused.

        Args:
            package: The package.
            wanted: The level or the version.
            reason: A pattern of the line that says why.

        Raises:
            TrialError: If it is refused for another reason, or changes something.
        """
        earlier = self.git("rev-parse", "HEAD")
        printed = self.nox(f"release({package})", wanted, succeeds=False)
        said = found(f".*{reason}.*", printed)
        if self.git("rev-parse", "HEAD") != earlier or self.git("status", "--porcelain"):
            raise TrialError(f"refusing {package} {wanted} changed the clone: {self.git('status')}")
        print(f"refused: {package} {wanted}: {said}")

    def release(self, package: str, wanted: str) -> None:
        """Release a package and publish it, as the workflow does."""
        self.nox(f"release({package})", wanted)
        tag = self.git("describe", "--exact-match", "--match", f"{package}-v*")
        self.nox(f"release_check({package})", "--tag", tag)
        self.nox(f"build({package})")
        products = sorted(str(product) for product in (self.clone / "dist" / package).iterdir())
        options = ("--non-interactive", "--disable-progress-bar", "--username", "nobody", "--password", "nothing")
        run(
            sys.executable, "-m", "twine", "upload", "--repository-url", self.index, *options, *products, cwd=self.clone
        )
        print(f"released: {tag}: {', '.join(Path(product).name for product in products)}")


@dataclass(frozen=True)
class User:
    """Who installs what was released.

    Attributes:
        home: A folder of their own, which holds the environment and a program.
        index: The address of the index.
        constraints: The file that holds the versions of everything else.
    """

    home: Path
    index: str
    constraints: Path

    @property
    def programs(self) -> Path:
        """The environment's programs."""
        return self.home / "environment" / "bin"

    def arrive(self) -> None:
        """Make the environment and the program."""
        self.home.mkdir()
        venv.create(self.home / "environment", with_pip=True)
        (self.home / "train.py").write_text(TRAINING, encoding="utf-8")

    def pip(self, *arguments: str, succeeds: bool = True) -> str:
        """Run pip."""
        return run(str(self.programs / "python"), "-m", "pip", *arguments, cwd=self.home, succeeds=succeeds)

    def install(self, *requirements: str, succeeds: bool = True) -> str:
        """Install from the index beside those that pip is configured with, which stay in force.

        pip knows no order among indexes, the highest version wins; so it is checked where ours came from.

        Raises:
            TrialError: If one of the packages came from elsewhere.
        """
        report = self.home / "report.json"
        report.unlink(missing_ok=True)
        options = ("--extra-index-url", f"{self.index}simple/", "--constraint", str(self.constraints))
        printed = self.pip("install", *options, "--report", str(report), *requirements, succeeds=succeeds)
        if succeeds:
            for entry in json.loads(report.read_text(encoding="utf-8"))["install"]:
                name, url = entry["metadata"]["name"], entry["download_info"]["url"]
                if name in OURS and not url.startswith(self.index):
                    raise TrialError(f"{name} came from {url}, not from {self.index}")
        return printed

    def versions(self) -> str:
        """Give which of the packages are installed."""
        installed = json.loads(self.pip("list", "--format", "json", "--disable-pip-version-check"))
        return ", ".join(f"{entry['name']} {entry['version']}" for entry in installed if entry["name"] in OURS)

    def expect(self, *versions: str) -> None:
        """Check which versions are installed, and that they fit together.

        Raises:
            TrialError: If others are.
        """
        if self.versions() != ", ".join(versions):
            raise TrialError(f"{', '.join(versions)} must be installed, found {self.versions()}")
        print(f"installed: {self.versions()}: {self.pip('check').strip()}")

    def train(self) -> None:
        """Train a step on two simulated cards."""
        variables = {"HPU_SIM_RUNTIME_DIR": str(self.home / "cards"), "PATH": f"{self.programs}:{os.environ['PATH']}"}
        command = (str(self.programs / "hpu-sim"), "run", "--quiet", "--devices", "2", "train.py")
        printed = run(*command, cwd=self.home, environment=variables)
        print(f"simulated: {found('trained 1 step on 2 cards .*', printed)}")


def begin(maintainer: Maintainer) -> None:
    """Make the clone what it was before any release, whatever has been released since."""
    for tag in maintainer.git("tag").splitlines():
        maintainer.git("tag", "--delete", tag)
    for file in maintainer.clone.glob("packages/*/src/*/__about__.py"):
        file.write_text('__version__ = "0.1.0"\n', encoding="utf-8")
    for file in maintainer.clone.glob("packages/*/pyproject.toml"):
        (file.parent / "changes" / "+first.added.md").write_text("Everything.\n", encoding="utf-8")
    maintainer.range("(hpu-[a-z]+)", ">=0.1,<0.2")
    maintainer.commit("before any release")


def make_releases(maintainer: Maintainer) -> None:
    """Release hpu-core, and hpu-ddp with a floor that only a newer hpu-core fulfils."""
    maintainer.refuse("hpu-ddp", "minor", "hpu-ddp is not released: .* release hpu-core first")
    maintainer.release("hpu-core", "minor")
    # The simulator stands for the cards; no package requires it.
    maintainer.release("hpu-sim", "minor")

    maintainer.edit("packages/hpu-core/src/hpu_core/trial.py", "", 'ANSWER = 42\n"""What hpu-ddp comes to need."""\n')
    maintainer.edit("packages/hpu-core/changes/+trial.added.md", "", "`hpu_core.trial`.\n")
    use = '"""What needs a new hpu-core."""\n\nfrom hpu_core.trial import ANSWER\n\n__all__ = ["ANSWER"]\n'
    maintainer.edit("packages/hpu-ddp/src/hpu_ddp/trial.py", "", use)
    maintainer.commit("hpu-ddp uses what hpu-core has not released")
    maintainer.refuse("hpu-core", "minor", "hpu-core is not released: .* excludes 0.2.0: widen that range")
    maintainer.range("(hpu-core|hpu-ddp)", ">=0.1,<0.3")
    maintainer.commit("every package admits hpu-core 0.2 and hpu-ddp 0.2")
    maintainer.release("hpu-core", "minor")

    maintainer.refuse("hpu-ddp", "0.2.0", r"error: .*hpu_core\.trial")
    maintainer.edit("packages/hpu-ddp/pyproject.toml", "hpu-core>=0.1,<0.3", "hpu-core>=0.2,<0.3")
    maintainer.commit("hpu-ddp needs hpu-core 0.2")
    maintainer.release("hpu-ddp", "0.2.0")


def live_with_releases(maintainer: Maintainer, user: User) -> None:
    """Install hpu-ddp alone, train, and change the hpu-core under it."""
    user.install("hpu-ddp")
    user.expect("hpu-core 0.2.0", "hpu-ddp 0.2.0")
    script = str(maintainer.clone / "scripts" / "import_every_module.py")
    for module in ("hpu_core", "hpu_ddp"):
        printed = run(str(user.programs / "python"), "-I", script, module, cwd=user.home)
        print(f"imported: {module}: {printed.strip().splitlines()[-1]}")
    user.install("hpu-ddp[lightning]", "hpu-sim")
    user.expect("hpu-core 0.2.0", "hpu-ddp 0.2.0", "hpu-sim 0.1.0")
    user.train()

    maintainer.edit("packages/hpu-core/src/hpu_core/trial.py", "comes to need", "needs")
    maintainer.edit("packages/hpu-core/changes/+trial.fixed.md", "", "A docstring.\n")
    maintainer.commit("hpu-core says it otherwise")
    maintainer.release("hpu-core", "patch")
    for requirement, version in ((("--upgrade", "hpu-core"), "0.2.1"), (("hpu-core==0.2.0",), "0.2.0")):
        user.install(*requirement)
        user.expect(f"hpu-core {version}", "hpu-ddp 0.2.0", "hpu-sim 0.1.0")
        user.train()

    together = user.install("hpu-ddp", "hpu-core==0.1.0", succeeds=False)
    print(f"refused: {found('.*Cannot install .*', together)}")
    below = user.install("hpu-core==0.1.0")
    print(f"installed: hpu-core 0.1.0: {found('hpu-ddp 0.2.0 requires hpu-core.*', below)}")
    print(f"pip check: {found('hpu-ddp 0.2.0 has requirement hpu-core.*', user.pip('check', succeeds=False))}")
    # What makes it whole again is what installed it.
    user.install("hpu-ddp")
    user.expect("hpu-core 0.2.1", "hpu-ddp 0.2.0", "hpu-sim 0.1.0")


def main() -> int:
    """Run the trial.

    Returns:
        0.

    Raises:
        TrialError: If something does not go as a release should.
    """
    with tempfile.TemporaryDirectory(prefix="release-trial-") as name:
        folder = Path(name)
        (folder / "index").mkdir()
        run("git", "clone", "--quiet", ROOT.as_uri(), "clone", cwd=folder)
        with package_index(folder / "index") as index:
            maintainer = Maintainer(folder / "clone", index, folder / "environments")
            for key, value in (("user.name", "A Maintainer"), ("user.email", "maintainer@example.org")):
                maintainer.git("config", key, value)
            begin(maintainer)
            make_releases(maintainer)
            user = User(folder / "user", index, maintainer.clone / "constraints" / "default.txt")
            user.arrive()
            live_with_releases(maintainer, user)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

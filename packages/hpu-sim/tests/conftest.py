"""One simulated machine for the suite's own process, and fresh interpreters for whatever needs another one.

The suite's process has two cards, of which it takes one, in lazy mode: there the counters have most to tell.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from typing import TYPE_CHECKING, Final

import pytest

import hpu_sim
from hpu_sim import subprocess_env

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# What the developer's shell, a launcher or the suite's own machine may have set, and no fresh interpreter may see: all
# with these beginnings but the cache, where the compiled device lies, and these.
_PREFIXES: Final = ("HABANA_", "HLS_", "HPU_SIM_", "OMPI_", "PT_HPU_")
_NAMES: Final = (
    "CXX",
    "ID",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "RANK",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCH_DEVICE_BACKEND_AUTOLOAD",
    "WORLD_SIZE",
)
_MACHINE: Final = [
    name for name in os.environ if name in _NAMES or (name.startswith(_PREFIXES) and name != "HPU_SIM_CACHE")
]
_OUTSIDE: Final = {name: value for name, value in os.environ.items() if name not in _MACHINE}
_TIME_LIMIT: Final = 120.0
# What warnings do: action, beginning of the text, class. An error, but for advice that torch gave to everybody for a
# while, itself included.
_WARNINGS: Final = [
    ("error", "", "Warning"),
    ("ignore", "TypedStorage is deprecated", "UserWarning"),  # 2.0, of its own storages
    ("ignore", "You are using `torch.load` with `weights_only=False`", "FutureWarning"),  # 2.4 and 2.5
    ("ignore", "The argument 'device' of Tensor.pin_memory() is deprecated", "DeprecationWarning"),  # 2.9, its loader
    ("ignore", "The argument 'device' of Tensor.is_pinned() is deprecated", "DeprecationWarning"),  # as above
    # 2.11: "Warning: Profiler clears events at the end of each cycle". A colon ends the text in a filter.
    ("ignore", "Warning", "UserWarning"),
    ("ignore", "`torch.cpu.amp.autocast(args...)` is deprecated", "FutureWarning"),  # 2.4, of its own checkpointing
]

_runtime_folder = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Start the simulator before any test module imports torch."""
    for action, text, category in _WARNINGS:
        config.addinivalue_line("filterwarnings", f"{action}:{re.escape(text)}:{category}")
    config.addinivalue_line("markers", "needs_torch(version, lacking): skipped where torch is older")
    for name in _MACHINE:
        del os.environ[name]
    # Documentation is tested by importing every module. Those of the bridge have the vendor's names, and some exist in
    # some releases only; a sitecustomize is Python's to import.
    config.option.ignore_glob = [*(config.option.ignore_glob or ()), "*/hpu_sim/bridge*", "*/hpu_sim/site_hook*"]
    config.stash[_runtime_folder] = tempfile.mkdtemp(prefix="hpu-sim-tests-")
    os.environ.update(HPU_SIM_RUNTIME_DIR=config.stash[_runtime_folder], PT_HPU_LAZY_MODE="1")
    hpu_sim.activate(devices=2)

    import torch

    # Sums in several threads differ from run to run in their last bits. Before anything else, because autograd's thread
    # for the card keeps the number that is set when it starts.
    torch.set_num_threads(1)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no lock files behind."""
    shutil.rmtree(config.stash[_runtime_folder], ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what the torch at hand does not have: not the simulator lacks it."""
    for item in items:
        for marker in item.iter_markers("needs_torch"):
            version, lacking = marker.args
            if not _has_torch(version):
                item.add_marker(pytest.mark.skip(reason=f"torch before {version} has no {lacking}"))


def _has_torch(version: str) -> bool:
    here, wanted = (
        tuple(map(int, re.findall(r"\d+", each)[:2])) for each in (importlib.metadata.version("torch"), version)
    )
    return here >= wanted


@pytest.fixture
def statistics() -> Iterator[Callable[[], dict[str, int]]]:
    """The counters of the simulated card, at zero when the test begins and with no graph open."""
    from hpu_sim.runtime import native

    native().mark_step()
    hpu_sim.reset_stats()
    yield hpu_sim.stats
    native().mark_step()


@pytest.fixture(scope="session")
def fresh_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """Returns the variables of a new process on a machine of its own: no simulator asked for, every card free."""

    def variables(changes: Mapping[str, str | None]) -> dict[str, str]:
        own = {"HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")), "OMP_NUM_THREADS": "1"}
        merged = {**_OUTSIDE, **own, **changes}
        if "HPU_SIM_DEVICES" in changes and not _has_torch("2.5"):
            # This torch does not ask for devices by itself; `hpu-sim run` sees to it in the same way.
            merged.setdefault("PYTHONPATH", str(subprocess_env.hook_folder()))
        return {name: value for name, value in merged.items() if value is not None}

    return variables


@pytest.fixture(scope="session")
def warning_filters() -> list[tuple[str, str, str]]:
    """What warnings do in the programs of tests: action, a pattern of the text, class."""
    return [(action, re.escape(text), category) for action, text, category in _WARNINGS]


@pytest.fixture(scope="session")
def without_gloo() -> Callable[[str], str]:
    """Takes out of what a program printed the lines in which gloo of torch 2.9 tells of its connections."""
    return lambda text: "".join(line for line in text.splitlines(keepends=True) if not line.startswith("[Gloo] "))


@pytest.fixture(scope="session")
def start_python(fresh_environment: Callable[..., dict[str, str]]) -> Callable[..., subprocess.Popen[str]]:
    """Starts an interpreter with arguments and further variables, its streams being pipes of text."""

    def start(*arguments: str | Path, **variables: str | None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=fresh_environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


@pytest.fixture(scope="session")
def run_python(
    fresh_environment: Callable[..., dict[str, str]], without_gloo: Callable[[str], str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a program given as text, with further variables, in an interpreter that warnings end."""
    filters = [argument for each in _WARNINGS for argument in ("-W", ":".join(each))]

    def run(program: str, *arguments: str | Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, *filters, "-c", textwrap.dedent(program), *arguments],
            env=fresh_environment(variables),
            capture_output=True,
            text=True,
            timeout=_TIME_LIMIT,
            check=False,
        )
        return subprocess.CompletedProcess(done.args, done.returncode, without_gloo(done.stdout), done.stderr)

    return run


@pytest.fixture(scope="session")
def output_of(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Runs a program that has to end well and returns what it prints, without the last line's end."""

    def output(program: str, *arguments: str | Path, **variables: str | None) -> str:
        result = run_python(program, *arguments, **variables)

        assert result.returncode == 0, result.stderr
        return result.stdout.rstrip("\n")

    return output

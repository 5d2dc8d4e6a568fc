"""Fixtures: a simulated machine for the suite's own process, and new interpreters for tests that need another one.

The suite's machine has two devices, of which the process acquires one, in lazy mode, which has the most counters.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import hpu_sim
import hpu_testing
from hpu_sim.device import runtime
from hpu_sim.process import subprocess_env
from hpu_testing.fork_server import ForkServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

    from hpu_sim.report.step_clock import StepClock

# Variables of the developer's shell, a launcher or the suite's own machine, which new interpreters must not inherit.
# HPU_SIM_CACHE is kept: it is the folder of the compiled extension.
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
# Warning filters: action, start of the text, class. Every warning is an error, except those that some torch gives for
# its own code, and Lightning's advice on a machine that has SLURM's commands.
_WARNINGS: Final = [
    ("error", "", "Warning"),
    ("ignore", "TypedStorage is deprecated", "UserWarning"),  # 2.0, of its own storages
    ("ignore", "You are using `torch.load` with `weights_only=False`", "FutureWarning"),  # 2.4 and 2.5
    ("ignore", "The argument 'device' of Tensor.pin_memory() is deprecated", "DeprecationWarning"),  # 2.9, its loader
    ("ignore", "The argument 'device' of Tensor.is_pinned() is deprecated", "DeprecationWarning"),  # as above
    # 2.11: "Warning: Profiler clears events at the end of each cycle". A colon ends the text in a filter.
    ("ignore", "Warning", "UserWarning"),
    ("ignore", "The `srun` command is available on your system but is not used", "UserWarning"),
    ("ignore", "`torch.cpu.amp.autocast(args...)` is deprecated", "FutureWarning"),  # 2.4, of its own checkpointing
]
_FILTERS: Final = [(action, re.escape(text), category) for action, text, category in _WARNINGS]


def pytest_configure(config: pytest.Config) -> None:
    """Activate the simulator before any test module imports torch."""
    for action, text, category in _WARNINGS:
        config.addinivalue_line("filterwarnings", f"{action}:{re.escape(text)}:{category}")
    config.addinivalue_line("markers", "needs_torch(version, lacking): skip with older torch")
    for name in _MACHINE:
        del os.environ[name]
    # Doctests import every module. Those of the bridge have the vendor's names and depend on the release, and
    # sitecustomize is imported by Python itself.
    config.option.ignore_glob = [*(config.option.ignore_glob or ()), "*/hpu_sim/bridge*", "*/hpu_sim/site_hook*"]
    os.environ["PT_HPU_LAZY_MODE"] = "1"
    hpu_sim.activate(devices=2)

    import torch

    # Multithreaded sums are not bitwise reproducible. First of all, because autograd's thread for the device keeps the
    # number that is set when it starts.
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of features that the installed torch lacks."""
    for item in items:
        for marker in item.iter_markers("needs_torch"):
            version, lacking = marker.args
            if not _has_torch(version):
                item.add_marker(pytest.mark.skip(reason=f"torch before {version} has no {lacking}"))


def _has_torch(version: str) -> bool:
    installed, required = (
        tuple(map(int, re.findall(r"\d+", each)[:2])) for each in (importlib.metadata.version("torch"), version)
    )
    return installed >= required


@pytest.fixture
def statistics() -> Iterator[Callable[[], dict[str, int]]]:
    """Return `hpu_sim.stats`, after a reset and with no open graph."""
    from hpu_sim.device.runtime import native

    native().mark_step()
    hpu_sim.reset_stats()
    yield hpu_sim.stats
    native().mark_step()


@pytest.fixture
def eager_mode() -> Iterator[None]:
    """Run the test in eager mode."""
    machine = runtime.active_config()
    runtime.native().configure(machine.devices, False, runtime.acquire_device)
    yield
    runtime.native().configure(machine.devices, machine.lazy, runtime.acquire_device)


@pytest.fixture(scope="module")
def make_library() -> Iterator[Callable[[str], torch.library.Library]]:
    """Return a function that returns a library for operators, which exist until the last test of the module."""
    import torch

    libraries: list[torch.library.Library] = []

    def make(name: str) -> torch.library.Library:
        libraries.append(torch.library.Library(name, "FRAGMENT"))
        return libraries[-1]

    yield make
    for library in libraries:
        # Where a library is only deleted, torch 2.11 keeps the names of its operators, and compiles nothing more.
        if hasattr(library, "_destroy"):
            library._destroy()


@pytest.fixture(scope="session")
def fresh_environment(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """Return a function that returns the environment of a new process, with every device free."""

    def variables(changes: Mapping[str, str | None]) -> dict[str, str]:
        own = {"HPU_SIM_RUNTIME_DIR": str(tmp_path_factory.mktemp("cards")), "OMP_NUM_THREADS": "1"}
        merged = {**_OUTSIDE, **own, **changes}
        if "HPU_SIM_DEVICES" in changes and not _has_torch("2.5"):
            # This torch loads no device backends. `hpu-sim run` adds the same hook.
            merged.setdefault("PYTHONPATH", str(subprocess_env.hook_folder()))
        return {name: value for name, value in merged.items() if value is not None}

    return variables


@pytest.fixture
def hpu_sim_command(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the installed command in a temporary folder."""

    def run(*arguments: str | Path, **variables: str | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [Path(sys.executable).with_name("hpu-sim"), *arguments],
            cwd=tmp_path,
            env=fresh_environment(variables),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def without_gloo() -> Callable[[str], str]:
    """Return a function that removes the lines that gloo of torch 2.9 prints about its connections."""
    return lambda text: "".join(line for line in text.splitlines(keepends=True) if not line.startswith("[Gloo] "))


@pytest.fixture(scope="session")
def fork_server(fresh_environment: Callable[..., dict[str, str]]) -> ForkServer:
    """An interpreter that has imported torch and its compiler, without the simulator, and forks programs."""
    # Not this process's path, which has folders of the release of its own machine.
    environment = {**fresh_environment({}), "PYTHONPATH": str(Path(hpu_testing.__file__).parents[1])}
    # Tests look at what else is imported.
    return ForkServer(environment, preloaded=["torch", "torch._dynamo", "hpu_testing.device"])


@pytest.fixture
def forks(fork_server: ForkServer) -> Iterator[None]:
    """Let the Python programs that a test starts be forks, of an interpreter that has imported torch."""
    with fork_server.forks():
        yield


@pytest.fixture(scope="session")
def start_python(
    fresh_environment: Callable[..., dict[str, str]], fork_server: ForkServer
) -> Callable[..., subprocess.Popen[str]]:
    """Return a function that starts a program with environment variables and text pipes, as a fork."""

    def start(*arguments: str | Path, **variables: str | None) -> subprocess.Popen[str]:
        with fork_server.forks():
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
    fresh_environment: Callable[..., dict[str, str]],
    fork_server: ForkServer,
    without_gloo: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs a program with environment variables, and with warnings as errors.

    The program is a fork of an interpreter that has imported torch, without the simulator.
    """
    return functools.partial(
        _run_fork, lambda variables: (fork_server, fresh_environment(variables)), without_gloo, tmp_path_factory
    )


@pytest.fixture(scope="session")
def output_on(
    fresh_environment: Callable[..., dict[str, str]],
    fork_server: ForkServer,
    without_gloo: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., str]:
    """Return a function like `output_of`, for programs of several tests on a machine that starts once for all."""

    @functools.cache
    def server(machine: frozenset[tuple[str, str | None]]) -> ForkServer:
        return fork_server.with_machine(fresh_environment(dict(machine)), filters=_FILTERS)

    def start(variables: Mapping[str, str | None]) -> tuple[ForkServer, dict[str, str]]:
        cards = {"HPU_SIM_RUNTIME_DIR": fresh_environment({})["HPU_SIM_RUNTIME_DIR"]}
        return server(frozenset(variables.items())), cards

    return functools.partial(_output_of, functools.partial(_run_fork, start, without_gloo, tmp_path_factory))


def _run_fork(
    choose: Callable[[Mapping[str, str | None]], tuple[ForkServer, dict[str, str]]],
    without_gloo: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
    program: str,
    *arguments: str | Path,
    **variables: str | None,
) -> subprocess.CompletedProcess[str]:
    server, environment = choose(variables)
    folder = tmp_path_factory.mktemp("program")
    command = ["-c", textwrap.dedent(program), *map(str, arguments)]
    with (folder / "stdout").open("w+") as output, (folder / "stderr").open("w+") as errors:
        process = server.start(command, environment, output, errors=errors, filters=_FILTERS)
        code = process.wait(_TIME_LIMIT)
    texts = [(folder / name).read_text(encoding="utf-8") for name in ("stdout", "stderr")]
    return subprocess.CompletedProcess([], code, without_gloo(texts[0]), texts[1])


@pytest.fixture(scope="session")
def run_new_python(
    fresh_environment: Callable[..., dict[str, str]], without_gloo: Callable[[str], str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function like `run_python`, for tests of Python's start and of the import of torch."""
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
    """Return a function that runs a program, which must succeed, and returns its output without the final newline."""
    return functools.partial(_output_of, run_python)


@pytest.fixture(scope="session")
def output_of_new_python(run_new_python: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., str]:
    """Return a function like `output_of`, for tests of Python's start and of the import of torch."""
    return functools.partial(_output_of, run_new_python)


def _output_of(
    run: Callable[..., subprocess.CompletedProcess[str]], program: str, *arguments: str | Path, **variables: str | None
) -> str:
    result = run(program, *arguments, **variables)

    assert result.returncode == 0, result.stderr
    return result.stdout.rstrip("\n")


@pytest.fixture
def clock() -> Iterator[StepClock]:
    """Yield the clock of a run, which the optimizers of the test drive."""
    from hpu_sim.common import frames
    from hpu_sim.device import events
    from hpu_sim.prediction.steps import StepTracker
    from hpu_sim.report.step_clock import StepClock

    def end_step() -> None:
        made.on_step()

    steps = StepTracker(end_step)
    made = StepClock(runtime.active_config(), steps)
    end = events.subscribe(
        frozenset({"optimizer_end"}),
        lambda event: steps.on_optimizer_step(event.arguments[0], frames.call_path(frames.event_frame())),
    )
    yield made
    end()
    made.close()

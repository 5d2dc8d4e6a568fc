"""Tests of `@pytest.mark.hpu` in user suites."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import pytest

from hpu_sim import pytest_plugin
from hpu_sim.pytest_plugin.requirements import DeviceRequirements, matches_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from hpu_testing.fork_server import ForkServer


class Suite:
    """Result of a pytest run.

    Args:
        output: Output of pytest.

    Attributes:
        output: Output of pytest.
        outcomes: Outcome of each test, by name.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self.outcomes = {
            match[2]: match[1].lower()
            for match in re.finditer(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) \S+?::(\S+)", output, re.MULTILINE)
        }

    def skipped(self) -> list[str]:
        """Return the reasons of skipped tests."""
        return re.findall(r"^SKIPPED \[\d+\] \S+?: (.*)$", self.output, re.MULTILINE)


def run_suite(folder: Path, environment: Mapping[str, str], source: str, *options: str, conftest: str = "") -> Suite:
    """Run a suite of one file without an ini file."""
    (folder / "test_user.py").write_text(textwrap.dedent(source), encoding="utf-8")
    (folder / "conftest.py").write_text(textwrap.dedent(conftest), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-rA", "--strict-markers", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
        check=False,
    )
    return Suite(done.stdout)


_ISOLATED_SUITE: Final = """
    import os
    import signal

    import pytest
    import torch

    @pytest.fixture
    def tensor():
        return torch.ones(3, device="hpu")

    @pytest.mark.hpu
    def test_default(tensor, tmp_path, request):
        import hpu_sim.device.runtime
        machine = hpu_sim.device.runtime.active_config()
        assert (machine.devices, machine.generation, machine.release.version) == (1, "GAUDI2", "1.24.1")
        assert tensor.sum().item() == 3
        assert request.config.getoption("--color-of-cards") == "blue"

    @pytest.mark.hpu(devices=2, generation="GAUDI3", release="1.20.0", lazy=True)
    def test_required():
        from habana_frameworks.torch import hpu
        from habana_frameworks.torch.utils.internal import is_lazy
        assert (hpu.device_count(), hpu.get_device_name(), is_lazy()) == (2, "GAUDI3", True)

    @pytest.mark.hpu
    @pytest.mark.parametrize("text", ["a::b"])
    def test_fails(tensor, text):
        print("printed text")
        assert tensor.sum().item() == 4, text

    @pytest.mark.hpu
    @pytest.mark.xfail(strict=True)
    def test_expected_to_fail():
        assert False

    @pytest.mark.hpu
    def test_skips():
        pytest.skip("not today")

    @pytest.mark.hpu
    def test_is_killed():
        os.kill(os.getpid(), signal.SIGKILL)

    @pytest.mark.hpu
    def test_missing_fixture(missing_fixture):
        pass

    @pytest.mark.hpu(devices=0)
    def test_invalid_requirement():
        pass

    @pytest.mark.hpu(cards=1)
    def test_unknown_argument():
        pass

    def test_without_marker(tmp_path):
        assert not hasattr(torch, "hpu")
"""

_OPTION: Final = """
    def pytest_addoption(parser):
        parser.addoption("--color-of-cards", default="red")
"""


@pytest.fixture(scope="module")
def isolated_suite(
    tmp_path_factory: pytest.TempPathFactory,
    fresh_environment: Callable[..., dict[str, str]],
    fork_server: ForkServer,
) -> Suite:
    """Run a suite in a process without a simulated machine."""
    folder = tmp_path_factory.mktemp("elsewhere")
    with fork_server.forks():
        return run_suite(folder, fresh_environment({}), _ISOLATED_SUITE, "--color-of-cards=blue", conftest=_OPTION)


@pytest.mark.parametrize(
    ("test", "outcome", "texts"),
    [
        # With its fixtures and the options of the suite.
        ("test_default", "passed", []),
        ("test_required", "passed", []),
        ("test_fails[a::b]", "failed", ["assert 3.0 == 4", "printed text"]),
        ("test_expected_to_fail", "xfail", []),
        # The suite continues.
        ("test_is_killed", "error", ["the subprocess of the test was killed by SIGKILL"]),
        ("test_missing_fixture", "error", ["fixture 'missing_fixture' not found"]),
        # A skip would hide it.
        ("test_invalid_requirement", "error", ["`devices` must be a number from 1 to 64, got 0"]),
        (
            "test_unknown_argument",
            "error",
            ["the keyword arguments devices, generation, release, lazy, got cards"],
        ),
        # It ran in the same pytest process, after the isolated ones, which do not affect it.
        ("test_without_marker", "passed", []),
    ],
)
def test_an_isolated_test_has_the_outcome_and_output_of_any_test(
    test: str, outcome: str, texts: list[str], isolated_suite: Suite
) -> None:
    assert isolated_suite.outcomes[test] == outcome, isolated_suite.output
    assert [text for text in texts if text not in isolated_suite.output] == []


def test_an_isolated_test_can_skip(isolated_suite: Suite) -> None:
    assert isolated_suite.skipped() == ["not today"]


@pytest.mark.usefixtures("forks")
def test_matching_machine_needs_no_subprocess(tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]) -> None:
    """Other machines are simulated in a subprocess."""
    source = """
        import os
        import pytest
        import torch

        @pytest.mark.hpu
        def test_here(request):
            torch.ones(3, device="hpu")
            assert os.getpid() == request.config.getoption("--pid")

        @pytest.mark.hpu(devices=3)
        def test_isolated(request):
            torch.ones(3, device="hpu")
            assert os.getpid() != request.config.getoption("--pid")
    """
    conftest = """
        import os
        import torch

        def pytest_addoption(parser):
            parser.addoption("--pid", default=os.getpid())
    """
    records = tmp_path / "records"
    records.mkdir()
    environment = fresh_environment({"HPU_SIM_DEVICES": "2", "HPU_SIM_REPORT": str(records)})

    suite = run_suite(tmp_path, environment, source, conftest=conftest)

    assert suite.outcomes == {"test_here": "passed", "test_isolated": "passed"}, suite.output
    # The report covers the pytest process only.
    assert len(list(records.glob("process-*.json"))) == 1


_TWO: Final = """
    import pytest

    @pytest.mark.hpu
    def test_first():
        assert False

    @pytest.mark.hpu
    def test_second():
        assert False
"""


def test_tests_are_skipped_if_the_simulator_cannot_start(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> None:
    environment = fresh_environment({"HPU_SIM_CACHE": str(tmp_path / "cache"), "CXX": "/no/such/compiler"})

    suite = run_suite(tmp_path, environment, _TWO)

    (reason,) = set(suite.skipped())
    assert reason.startswith("the simulator cannot start: hpu-sim needs a C++ compiler and found no ")
    assert suite.outcomes == {}


_BRIDGE: Final = {
    "habana_frameworks/torch/__init__.py": "",
    "habana_frameworks/torch/hpu.py": "def device_count(): return 1",
    "habana_frameworks/torch/utils/__init__.py": "",
    "habana_frameworks/torch/utils/internal.py": "def is_lazy(): return False",
    "habana_frameworks/torch/utils/experimental.py": """
import enum

class synDeviceType(enum.Enum):
    synDeviceGaudi3 = 5

def _get_device_type(): return synDeviceType.synDeviceGaudi3
""",
    "habana_torch_plugin-1.22.0.740.dist-info/METADATA": """\
Metadata-Version: 2.1
Name: habana-torch-plugin
Version: 1.22.0.740
""",
}


def test_tests_use_the_cards_of_a_gaudi_machine(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> None:
    """Tests with other requirements are skipped. The machine is a fake bridge."""
    machine = tmp_path / "machine"
    for name, content in _BRIDGE.items():
        (machine / name).parent.mkdir(parents=True, exist_ok=True)
        (machine / name).write_text(content, encoding="utf-8")
    source = """
        import os
        import pytest

        @pytest.mark.hpu(generation="GAUDI3", release="1.22.0", lazy=False)
        def test_fits(request):
            import habana_frameworks
            assert habana_frameworks.__path__[0].endswith("machine/habana_frameworks")

        @pytest.mark.hpu(devices=2)
        def test_two(): pass

        @pytest.mark.hpu(generation="GAUDI2")
        def test_generation(): pass

        @pytest.mark.hpu(release="1.22")
        def test_minor(): pass

        @pytest.mark.hpu(release="1.2")
        def test_release(): pass

        @pytest.mark.hpu(lazy=True)
        def test_lazy(): pass
    """
    suite = run_suite(tmp_path, fresh_environment({"PYTHONPATH": str(machine)}), source)

    assert suite.outcomes == {"test_fits": "passed", "test_minor": "passed"}, suite.output
    assert suite.skipped() == [
        "needs 2 Gaudi cards, this machine has 1",
        "needs a GAUDI2, this machine has GAUDI3",
        "needs SynapseAI 1.2, this machine has 1.22.0.740",
        "needs PT_HPU_LAZY_MODE=1, this process has None",
    ]


def test_each_session_has_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of pytest-xdist inherits the variables of its controller, which may hold the only card."""
    monkeypatch.delitem(sys.modules, "hpu_sim.device.runtime")
    monkeypatch.setenv("HPU_SIM_MACHINE", "auto:1")
    monkeypatch.delenv("HPU_SIM_RUNTIME_DIR", raising=False)
    pytest_plugin.pytest_load_initial_conftests(mock.Mock(known_args_namespace=mock.Mock(hpu_sim_strict=False)))

    assert os.environ["HPU_SIM_MACHINE"] not in {"", "auto:1"}


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ({}, True),
        ({"devices": 2, "generation": "GAUDI2", "release": "1.24.1", "lazy": True}, True),
        ({"devices": 3}, False),
        ({"generation": "GAUDI3"}, False),
        ({"release": "1.20.0"}, False),
        ({"lazy": False}, False),
    ],
    ids=str,
)
def test_this_process_matches_its_requirements_alone(options: dict[str, Any], matches: bool) -> None:
    assert matches_process(DeviceRequirements(**options).config()) is matches


def test_plugin_imports_nothing_early(output_of_new_python: Callable[..., str]) -> None:
    """Pytest loads the plugin in every environment with hpu-sim."""
    program = """
        import sys
        import pytest
        before = set(sys.modules)
        import hpu_sim.pytest_plugin
        print(sorted(name for name in set(sys.modules) - before if not name.startswith("hpu_sim.pytest_plugin")))
    """
    assert output_of_new_python(program) == "['hpu_sim', 'hpu_sim.__about__']"


def test_import_without_pytest_names_the_command(
    run_new_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    result = run_new_python("import sys; sys.modules['pytest'] = None; import hpu_sim.pytest_plugin")

    assert "needs pytest, which is not installed: pip install pytest" in result.stderr


@pytest.mark.usefixtures("forks")
def test_the_option_makes_the_cards_strict(tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]) -> None:
    """In the subprocess of an isolated test."""
    source = """
    import pytest
    import torch

    @pytest.mark.hpu
    def test_complex():
        with pytest.raises(RuntimeError, match="Complex datatype"):
            torch.fft.fft(torch.ones(2, device="hpu"))
    """

    suite = run_suite(tmp_path, fresh_environment({}), source, "--hpu-sim-strict")

    assert suite.outcomes == {"test_complex": "passed"}

"""`@pytest.mark.hpu`, in suites of a user."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING, Any, Final

import pytest

from hpu_sim.pytest_plugin.requirements import DeviceRequirements, matches_process, skip_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Suite:
    """What pytest said of a suite.

    Attributes:
        output: All of it.
        outcomes: What became of each test, by name.
    """

    def __init__(self, output: str) -> None:
        self.output = output
        self.outcomes = {
            match[2]: match[1].lower()
            for match in re.finditer(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS) \S+?::(\S+)", output, re.MULTILINE)
        }

    def skipped(self) -> list[str]:
        """Return why tests were skipped."""
        return re.findall(r"^SKIPPED \[\d+\] \S+?: (.*)$", self.output, re.MULTILINE)


def run_suite(folder: Path, environment: Mapping[str, str], source: str, *options: str, conftest: str = "") -> Suite:
    """Run a suite of one file, as a user would who has no ini file."""
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
        import hpu_sim.runtime
        machine = hpu_sim.runtime.active_config()
        assert (machine.devices, machine.generation, machine.release.version) == (1, "GAUDI2", "1.24.1")
        assert tensor.sum().item() == 3
        assert request.config.getoption("--color-of-cards") == "blue"

    @pytest.mark.hpu(devices=2, generation="GAUDI3", release="1.20.0", lazy=True)
    def test_asked_for():
        from habana_frameworks.torch import hpu
        from habana_frameworks.torch.utils.internal import is_lazy
        assert (hpu.device_count(), hpu.get_device_name(), is_lazy()) == (2, "GAUDI3", True)

    @pytest.mark.hpu
    @pytest.mark.parametrize("text", ["a::b"])
    def test_fails(tensor, text):
        print("said before")
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
    def test_lacks_a_fixture(nobody_has_it):
        pass

    @pytest.mark.hpu(devices=0)
    def test_asks_for_no_card():
        pass

    @pytest.mark.hpu(cards=1)
    def test_asks_in_other_words():
        pass

    def test_without_marker(tmp_path):
        assert not hasattr(torch, "hpu")
"""

_OPTION: Final = """
    def pytest_addoption(parser):
        parser.addoption("--color-of-cards", default="red")
"""


@pytest.fixture(scope="module")
def isolated_suite(tmp_path_factory: pytest.TempPathFactory, fresh_environment: Callable[..., dict[str, str]]) -> Suite:
    """A suite in a process that is no machine."""
    folder = tmp_path_factory.mktemp("elsewhere")
    return run_suite(folder, fresh_environment({}), _ISOLATED_SUITE, "--color-of-cards=blue", conftest=_OPTION)


def test_a_test_gets_one_card_by_default(isolated_suite: Suite) -> None:
    """With its fixtures, and with the options of the suite."""
    assert isolated_suite.outcomes["test_default"] == "passed", isolated_suite.output


def test_a_test_gets_the_machine_it_asks_for(isolated_suite: Suite) -> None:
    """Cards, generation, release and mode."""
    assert isolated_suite.outcomes["test_asked_for"] == "passed", isolated_suite.output


def test_a_failure_looks_like_one_of_this_process(isolated_suite: Suite) -> None:
    """With what pytest says of the assertion and what the test had printed."""
    assert isolated_suite.outcomes["test_fails[a::b]"] == "failed"
    assert "assert 3.0 == 4" in isolated_suite.output
    assert "said before" in isolated_suite.output


def test_an_expected_failure_and_a_skip_stay_what_they_are(isolated_suite: Suite) -> None:
    """With their reasons."""
    assert isolated_suite.outcomes["test_expected_to_fail"] == "xfail"
    assert isolated_suite.skipped() == ["not today"]


def test_a_test_whose_process_is_killed_is_an_error(isolated_suite: Suite) -> None:
    """And the suite goes on."""
    assert isolated_suite.outcomes["test_is_killed"] == "error"
    assert "the test's own process was ended by SIGKILL" in isolated_suite.output


def test_a_missing_fixture_is_an_error(isolated_suite: Suite) -> None:
    """As everywhere."""
    assert isolated_suite.outcomes["test_lacks_a_fixture"] == "error"
    assert "fixture 'nobody_has_it' not found" in isolated_suite.output


def test_a_machine_that_cannot_be_is_an_error(isolated_suite: Suite) -> None:
    """In one sentence; a skip would hide it."""
    assert isolated_suite.outcomes["test_asks_for_no_card"] == "error"
    assert "`devices` must be a number from 1 to 64, got 0" in isolated_suite.output


def test_a_marker_in_other_words_is_an_error(isolated_suite: Suite) -> None:
    """With the words that it takes."""
    assert isolated_suite.outcomes["test_asks_in_other_words"] == "error"
    words = "`pytest.mark.hpu` takes the keywords devices, generation, release, lazy, got cards"
    assert words in isolated_suite.output


def test_other_tests_see_nothing_of_it(isolated_suite: Suite) -> None:
    """They ran in the same pytest, after the marked ones."""
    assert isolated_suite.outcomes["test_without_marker"] == "passed"


def test_a_machine_that_is_here_is_used(tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]) -> None:
    """In pytest's own process, which is much quicker; any other machine is elsewhere still."""
    source = """
        import os
        import pytest
        import torch

        @pytest.mark.hpu
        def test_here(request):
            torch.ones(3, device="hpu")
            assert os.getpid() == request.config.getoption("--pid")

        @pytest.mark.hpu(devices=3)
        def test_elsewhere(request):
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

    assert suite.outcomes == {"test_here": "passed", "test_elsewhere": "passed"}, suite.output
    # A report that is being made is about this machine alone.
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


def test_where_the_simulator_cannot_start_tests_are_skipped(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> None:
    """With the reason."""
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


def test_on_a_gaudi_machine_tests_use_the_cards(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]
) -> None:
    """In pytest's own process; those that ask for other cards are skipped. The machine is a stand-in here."""
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


def test_what_is_not_asked_for_is_as_it_is_here() -> None:
    """So that a suite can be run on any machine."""
    config = DeviceRequirements().config()

    assert matches_process(config)
    assert (config.devices, config.lazy) == (2, True)


@pytest.mark.parametrize(
    "options", [{"devices": 3}, {"generation": "GAUDI3"}, {"release": "1.20.0"}, {"lazy": False}], ids=str
)
def test_what_is_asked_for_is_another_machine(options: dict[str, Any]) -> None:
    """Whatever it is."""
    assert not matches_process(DeviceRequirements(**options).config())


def test_a_machine_that_is_asked_for_as_it_is_here_is_here() -> None:
    """The marker may repeat it."""
    assert matches_process(DeviceRequirements(devices=2, generation="GAUDI2", release="1.24.1", lazy=True).config())


@pytest.mark.parametrize(
    ("requirements", "reason"),
    [
        (DeviceRequirements(), None),
        (DeviceRequirements(devices=2, generation="gaudi2", release="1.24.1", lazy=True), None),
        (DeviceRequirements(devices=3), "needs 3 Gaudi cards, this machine has 2"),
        (DeviceRequirements(generation="GAUDI3"), "needs a GAUDI3, this machine has GAUDI2"),
        (DeviceRequirements(release="1.24.10"), "needs SynapseAI 1.24.10, this machine has 1.24.1"),
        (DeviceRequirements(lazy=False), "needs PT_HPU_LAZY_MODE=0, this process has '1'"),
    ],
    ids=str,
)
def test_cards_are_asked_what_they_are(requirements: DeviceRequirements, reason: str | None) -> None:
    """The simulated ones answer here as real ones do."""
    assert (skip_reason(requirements) or "None").startswith(str(reason))


def test_the_plugin_loads_nothing_before_it_is_needed(output_of: Callable[..., str]) -> None:
    """Every pytest of an environment with hpu-sim loads it."""
    program = """
        import sys
        import pytest
        before = set(sys.modules)
        import hpu_sim.pytest_plugin
        print(sorted(name for name in set(sys.modules) - before if not name.startswith("hpu_sim.pytest_plugin")))
    """
    assert output_of(program) == "['hpu_sim', 'hpu_sim.__about__']"


def test_without_pytest_the_plugin_says_what_to_install(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """It is an extra."""
    result = run_python("import sys; sys.modules['pytest'] = None; import hpu_sim.pytest_plugin")

    assert "needs pytest, which is not installed: pip install 'hpu-sim[pytest]'" in result.stderr

"""Tests of `hpu-sim run --report` with programs that have problems."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

from hpu_sim import cli
from hpu_sim.common.encoding import from_dict
from hpu_sim.prediction import torch_tools
from hpu_sim.report.schema import Report, Site
from hpu_testing import free_port

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("forks")

_COMMAND: Final = Path(sys.executable).with_name("hpu-sim")
_PROGRAMS: Final = Path(__file__).parent / "programs"


def _sites(report: Report, kind: str, variant: str = "") -> dict[str, Site]:
    """Return the sites of rank 0 by source code."""
    chosen = [site for site in report.ranks[0].sites if site.kind == kind and variant in {"", site.variant}]
    return {site.frame.source if site.frame else "": site for site in chosen}


def test_dynamic_shapes_and_host_syncs_are_found(run_recorded: Callable[..., Any]) -> None:
    done, report = run_recorded("dynamic_shapes.py")

    assert (done.returncode, done.stdout) == (0, "done\n")
    (record,) = report.ranks
    assert record.state == "exited"
    assert record.steps == 10

    if torch_tools.is_supported():
        assert record.predicted is not None
        assert record.predicted.fast_seconds < record.predicted.slow_seconds
        assert any("dynamic_shapes.py:" in each.name for each in record.predicted.costs)

    syncs = _sites(report, "host_sync")
    assert len(syncs) == 2
    in_loop = syncs["losses.append(loss.item())"]
    evaluation = syncs['model(torch.ones(4, 8).to("hpu")).mean().cpu()']
    assert (in_loop.count, in_loop.steps) == (10, 10)
    assert (evaluation.count, evaluation.steps, evaluation.last_step) == (6, 2, 10)

    # Three new lengths after warm-up, attributed to the forward pass, and the shape of the validation batch.
    changed = _sites(report, "compilation", "shapes")["loss: Tensor = model(batch).pow(2).mean()"]
    assert (changed.count, changed.last_step) == (3, 8)
    assert any("[16, 8]" in each and "[17, 8]" in each for each in changed.examples)

    copies = _sites(report, "h2d")
    assert copies['batch = torch.ones(length, 8).to("hpu")'].variant == "pageable"
    assert "Recipe cache misses from dynamic shapes" in done.stderr


@pytest.mark.needs_torch("2.1", "compiler for Python 3.11")
def test_both_graphs_of_a_compiled_step_belong_to_its_forward_pass(run_recorded: Callable[..., Any]) -> None:
    """The graph of the backward pass is compiled in a thread of autograd."""
    done, report = run_recorded("compiled.py", PT_HPU_LAZY_MODE="0")

    assert done.returncode == 0, done.stderr
    graphs = [site for site in report.ranks[0].sites if site.kind == "compiled_graph"]
    assert sorted(site.op for site in graphs) == ["backward", "forward"]
    assert all(site.frame is not None and "the forward pass" in site.frame.source for site in graphs)


def test_unsupported_dtypes_are_found(run_recorded: Callable[..., Any]) -> None:
    """A program that fails also leaves a report."""
    done, report = run_recorded("unsupported_dtypes.py", PT_HPU_LAZY_MODE="0")

    assert done.returncode == report.exit_code == 1
    doubles = _sites(report, "dtype", "float64")
    assert set(doubles) == {"norm = values.double().pow(2).sum()"}
    assert set(_sites(report, "unsupported")) == {'spectrum.to("hpu")'}
    assert "error: Unsupported operation" in done.stderr
    assert "RuntimeError: Complex datatype is not supported on HPU device." in done.stderr


def test_records_of_all_ranks_are_merged(run_recorded: Callable[..., Any]) -> None:
    done, report = run_recorded("two_ranks.py", str(free_port()), devices=2)

    assert done.returncode == 0, done.stderr
    assert [(record.rank, record.world_size, record.steps) for record in report.ranks] == [
        (0, 2, 4),
        (1, 2, 4),
    ]
    assert report.missing_ranks == ()
    used = [site for site in report.ranks[1].sites if site.kind == "collective"]
    assert (sum(site.count for site in used), sum(site.bytes for site in used)) == (9, 4 * (256 + 32) + 8)
    assert "allreduce, int64" in done.stderr


@pytest.mark.slow
def test_killed_rank_is_a_finding(run_recorded: Callable[..., Any]) -> None:
    done, report = run_recorded("two_ranks.py", str(free_port()), "1", devices=2)

    assert done.returncode == 1
    assert {record.rank: record.state for record in report.ranks}[1] == "running"
    assert re.search(r"error: (Rank 1 was|Ranks 0, 1 were) killed", done.stderr)


_TRAINING: Final = """
import sys
import torch

x = torch.ones(3, device="hpu")
x.sum().item()
"""


@pytest.fixture
def run_hpu_sim(
    tmp_path: Path, hpu_sim_command: Callable[..., subprocess.CompletedProcess[str]]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs `hpu-sim run` with options and the source of a program."""

    def run(program: str, *options: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(program, encoding="utf-8")
        return hpu_sim_command("run", *options, "script.py")

    return run


@pytest.mark.slow
def test_run_without_a_report_becomes_the_program(run_hpu_sim: Callable[..., Any]) -> None:
    done = run_hpu_sim(_TRAINING + "import os; print(os.environ.get('HPU_SIM_REPORT'))")

    assert (done.returncode, done.stdout) == (0, "None\n")
    assert done.stderr == "hpu-sim: simulated card 0 of 1 x GAUDI2 on SynapseAI 1.24.1, eager mode\n"


@pytest.mark.slow
def test_relative_report_path_survives_chdir(run_hpu_sim: Callable[..., Any], tmp_path: Path) -> None:
    done = run_hpu_sim(f"import os; os.chdir('/')\n{_TRAINING}sys.exit(3)", "--quiet", "--report", "report.html")

    assert done.returncode == 3
    assert "steps" not in done.stderr
    assert "exited with code 3" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_interrupt_is_forwarded_and_reported(tmp_path: Path, fresh_environment: Callable[..., dict[str, str]]) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        pytest.skip("processes in the background ignore SIGINT")
    script = tmp_path / "script.py"
    script.write_text(f"{_TRAINING}print('ready', flush=True)\nsys.stdin.read()\n", encoding="utf-8")
    path = tmp_path / "report.json"
    with subprocess.Popen(
        [_COMMAND, "run", "--report", path, script],
        env=fresh_environment({}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        # Keep stdin open until then: EOF would end the script, too.
        process.wait(timeout=60)
        _, errors = process.communicate()

    assert process.returncode == -signal.SIGINT
    assert "KeyboardInterrupt" in errors
    report = from_dict(Report, json.loads(path.read_text(encoding="utf-8")))
    assert (report.exit_code, report.ranks[0].state) == (-signal.SIGINT, "exited")


def test_killed_program_leaves_a_report(run_hpu_sim: Callable[..., Any], tmp_path: Path) -> None:
    done = run_hpu_sim(f"{_TRAINING}import os; os.kill(os.getpid(), 9)", "--report", "report.json")

    assert done.returncode == -signal.SIGKILL
    report = from_dict(Report, json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))
    assert (report.exit_code, report.ranks[0].state) == (-signal.SIGKILL, "running")
    assert "Rank 0 was killed" in done.stderr


@pytest.mark.slow
def test_forked_rank_leaves_a_record(run_hpu_sim: Callable[..., Any], tmp_path: Path) -> None:
    """Its process exits without running atexit handlers."""
    program = """
import multiprocessing
import torch

def work():
    torch.ones(3, device="hpu").sum().item()

if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
"""
    run_hpu_sim(program, "--report", "report.json")

    report = from_dict(Report, json.loads((tmp_path / "report.json").read_text(encoding="utf-8")))
    assert [(record.state, record.totals["host_syncs"]) for record in report.ranks] == [("exited", 1)]


def test_report_command_merges_records(
    tmp_path: Path, fresh_environment: Callable[..., dict[str, str]], output_of: Callable[..., str]
) -> None:
    """Another launcher can start the ranks with `HPU_SIM_REPORT`."""
    folder = tmp_path / "records"
    folder.mkdir()
    output_of(_TRAINING, HPU_SIM_DEVICES="1", HPU_SIM_REPORT=str(folder))

    shown = CliRunner().invoke(cli.main, ["report", str(folder)])
    made = CliRunner().invoke(cli.main, ["report", str(folder), str(tmp_path / "report.html")])

    assert shown.exit_code == made.exit_code == 0
    assert shown.output.startswith("hpu-sim: 1 x GAUDI2, SynapseAI 1.24.1, eager mode (simulated)\n")
    assert made.output == ""
    assert (tmp_path / "report.html").is_file()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent/report.html", "`report` must be a file that can be written, got 'absent/report.html'"),
        ("report.txt", "`report` must end in .html or .json, got 'report.txt'"),
    ],
)
def test_invalid_path_is_a_usage_error(path: str, message: str) -> None:
    result = CliRunner().invoke(cli.main, ["run", "--report", path, __file__])

    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


def test_a_folder_is_no_report(tmp_path: Path) -> None:
    folder = tmp_path / "report.html"
    folder.mkdir()
    result = CliRunner().invoke(cli.main, ["run", "--report", str(folder), __file__])

    assert result.exit_code == 2
    assert "`report` must be a file that can be written" in " ".join(result.output.split())


def test_invalid_record_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "process-1.json").write_text("{}", encoding="utf-8")
    result = CliRunner().invoke(cli.main, ["report", str(tmp_path)])

    assert result.exit_code == 2
    assert "invalid record" in result.output

"""Tests of the command `hpu-launch`."""

import importlib.util
import json
import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from hpu_launch.cli import main
from hpu_testing import machine_env

_ADDRESS = ("--address", "node-1")
_IMAGE = ("--image", "image:1")
# Two machines with four cards, as each engine wants them named.
MACHINES = {
    engine: ("--engine", engine, "--nodes", "2", "--devices", "4", *options)
    for engine, options in {
        "torchrun": _ADDRESS,
        "mpirun": ("--hosts", "node-1,node-2"),
        "slurm": (),
        "ray": _ADDRESS,
        "kubernetes": _IMAGE,
        "kubernetes-mpi": _IMAGE,
    }.items()
}
SCRIPT = ("train.py", "--learning rate", "0.1")
_KUBERNETES = ["kubernetes", "kubernetes-mpi"]


def _print(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def _machines(engine: str, nodes: int) -> tuple[str, ...]:
    hosts = ("--hosts", f"node-[1-{nodes}]") if engine == "mpirun" else ()
    return ("--nodes", str(nodes), "--devices", "8", *hosts)


def _words(text: str) -> list[str]:
    # shlex does not join lines.
    return shlex.split(text.replace("\\\n", ""), comments=True)


def _refuse(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    return result.output


def _manifest(engine: str, *arguments: str) -> Any:
    return yaml.safe_load(_print(*MACHINES[engine], *arguments, *SCRIPT))


def _pod(engine: str, *arguments: str, replica: str = "Worker") -> Any:
    """Return the pod of a manifest's replica."""
    kind = {"kubernetes": "pytorch", "kubernetes-mpi": "mpi"}[engine]
    return _manifest(engine, *arguments)["spec"][f"{kind}ReplicaSpecs"][replica]["template"]["spec"]


def _launcher_command(*arguments: str) -> list[str]:
    (container,) = _pod("kubernetes-mpi", *arguments, replica="Launcher")["containers"]
    command: list[str] = container["command"]
    return command


@pytest.mark.parametrize("engine", ["torchrun", "mpirun", "ray"])
def test_printed_command_is_a_shells(engine: str) -> None:
    """Comments and line ends do not change the words."""
    text = _print(*MACHINES[engine], *SCRIPT)

    assert _words(text)[0] == engine
    assert _words(text)[-3:] == list(SCRIPT)
    assert "needs `devices=4, num_nodes=2`" in text


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (
            ("--engine", "torchrun", "--devices", "2"),
            ["torchrun --standalone --nproc-per-node=2 --max-restarts=0 train.py"],
        ),
        (
            (*MACHINES["torchrun"], "--port", "1234", "--max-restarts", "3"),
            ["--nnodes=2", "--rdzv-endpoint=node-1:1234", "--max-restarts=3"],
        ),
        # It goes on with fewer machines.
        (
            (*MACHINES["torchrun"], "--min-nodes", "1", "--max-restarts", "3"),
            ["env TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun", "--nnodes=1:2"],
        ),
        (
            MACHINES["mpirun"],
            ["-np 8", "--host node-1:4,node-2:4", "MASTER_ADDR=node-1", "MASTER_PORT=29500"],
        ),
        # By default, Open MPI binds a rank of two to one core, which its data loaders share.
        (("--engine", "mpirun", "--devices", "2"), ["--bind-to none"]),
        (("--engine", "mpirun", "--devices", "2", "--cpus", "6"), ["--bind-to core", "--map-by ppr:2:node:PE=6"]),
        (
            ("--engine", "ray", "--devices", "2", "--cpus", "4", "--max-restarts", "3"),
            ["python -m hpu_ray --num-workers=2 --cpus-per-worker=4 --max-failures=3 --name=train train.py"],
        ),
        (
            MACHINES["ray"],
            ["ray job submit --address=http://node-1:8265 --working-dir=. --", "--num-workers=8"],
        ),
        (
            (*MACHINES["slurm"], "--time", "1-02:00:00"),
            ["#!/bin/bash\n", "--job-name=train --nodes=2", "--ntasks-per-node=4 ", "--time=1-02:00:00 "],
        ),
        # Without the first the others wait until the time limit if a rank fails; the second is for a requeued job.
        (("--engine", "slurm"), ["--kill-on-bad-exit=1", "#SBATCH --open-mode=append"]),
        # Otherwise SLURM would give the same cards to several jobs, and a job a part of the memory.
        (("--engine", "slurm"), ["#SBATCH --exclusive", "#SBATCH --mem=0"]),
        (
            ("--engine", "slurm", "--partition", "gaudi", "--account", "lab", "--qos", "high"),
            ["#SBATCH --partition=gaudi\n", "#SBATCH --account=lab\n", "#SBATCH --qos=high\n"],
        ),
        (("--engine", "slurm", "--gres", "gpu:HL-225:8"), ["#SBATCH --gres=gpu:HL-225:8"]),
        # srun does not take the cores from sbatch, and by default SLURM gives a rank one.
        (("--engine", "slurm", "--devices", "4", "--cpus", "6"), ["--cpus-per-task=6"]),
        (("--engine", "slurm", "--devices", "4"), ["--cpus-per-task=$((SLURM_CPUS_ON_NODE / 4))"]),
    ],
)
def test_printed_text(arguments: tuple[str, ...], texts: list[str]) -> None:
    text = _print(*arguments, "train.py")

    joined = text * ("slurm" in arguments) + " ".join(_words(text.replace("#SBATCH", "")))
    assert [each for each in texts if each not in joined] == []


def test_comments_say_what_the_script_needs() -> None:
    elastic = _print(*MACHINES["torchrun"], "--min-nodes", "1", "--max-restarts", "3", *SCRIPT)
    ray = _print(*MACHINES["ray"], *SCRIPT)

    assert 'num_nodes=int(os.environ["GROUP_WORLD_SIZE"])' in elastic
    assert "`ray start --address=node-1:6379`" in ray
    assert """`--resources='{"HPU": 4}'`""" in ray


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("a,b", ["a", "b"]),
        ("node-[098-100,130].net,login", ["node-098.net", "node-099.net", "node-100.net", "node-130.net", "login"]),
        ("r[1-2]n[1-2,10]x", ["r1n1x", "r1n2x", "r1n10x", "r2n1x", "r2n2x", "r2n10x"]),
    ],
)
def test_mpirun_has_a_machine_for_each_host(hosts: str, names: list[str]) -> None:
    """Host names are written as SLURM lists them."""
    words = _words(_print("--engine", "mpirun", "--hosts", hosts, "train.py"))

    assert words[words.index("-np") + 1] == str(8 * len(names))
    assert words[words.index("--host") + 1].split(",") == [f"{name}:8" for name in names]


def test_kubernetes_has_namespace_and_machines() -> None:
    options = ("--namespace", "lab", "--node-selector", "gaudi=3", "--node-selector", "zone=null")
    for engine in _KUBERNETES:
        assert _manifest(engine, *options)["metadata"]["namespace"] == "lab"
        assert _pod(engine, *options)["nodeSelector"] == {"gaudi": "3", "zone": "null"}


@pytest.mark.parametrize("engine", list(MACHINES))
def test_ranks_get_variables(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those without a value have that of this process."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    options = ("--env", "A=1 $B", "--env", "WANDB_MODE")
    text = _print(*MACHINES[engine], *options, *SCRIPT)

    expected = {"A": "1 $B", "WANDB_MODE": "offline"}
    if engine == "kubernetes":
        variables = _pod(engine, *options)["containers"][0]["env"]
        assert expected.items() <= {each["name"]: each["value"] for each in variables}.items()
    elif engine == "kubernetes-mpi":
        assert {"A=1 $B", "WANDB_MODE=offline"} <= set(shlex.split(_launcher_command(*options)[2]))
    elif engine == "ray":
        (option,) = [word for word in _words(text) if word.startswith("--runtime-env-json=")]
        assert json.loads(option.partition("=")[2]) == {"env_vars": expected}
    else:
        assert {"A=1 $B", "WANDB_MODE=offline"} <= set(_words(text))


@pytest.mark.parametrize("engine", list(MACHINES))
def test_python_of_an_environment_runs_the_script(engine: str) -> None:
    text = _print(*MACHINES[engine], "--python", "/opt/my env/bin/python", *SCRIPT)

    assert "/opt/my env/bin/python" in text.replace("\\", "")
    # Neither the one on PATH, nor its torchrun.
    assert not re.search(r"(?<![/\w])(python|torchrun) ", re.sub("#.*|--engine.*", "", text).replace("/bin/python", ""))


@pytest.mark.parametrize(
    ("options", "found", "engine"),
    [
        ((), "", "torchrun"),
        ((), "sbatch", "slurm"),
        ((), "RAY_ADDRESS", "ray"),
        (("--hosts", "a,b"), "sbatch", "mpirun"),
        (("--image", "i"), "sbatch", "kubernetes"),
    ],
)
def test_engine_is_found(
    options: tuple[str, ...], found: str, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a program on PATH, by a variable or by options."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if found == "sbatch":
        _fake_engine(tmp_path, found)
    elif found:
        monkeypatch.setenv(found, "auto")

    assert f"hpu-launch: --engine {engine}, because" in _print(*options, "train.py")


def test_profile_has_defaults_of_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the engine come before those of all, and options on the command line before both."""
    profile = tmp_path / "gaudi.ini"
    profile.write_text(
        "[all]\nengine = slurm\ndevices = 4\nenv =\n    A=1\n    B=2\n[slurm]\npartition = p\ntime = 01:00:00\n"
    )
    given = _print("--profile", str(profile), "--time", "02:00:00", "train.py")
    monkeypatch.setenv("HPU_LAUNCH_PROFILE", str(profile))
    other = _print("--engine", "torchrun", "train.py")

    assert {"#SBATCH --partition=p", "export A=1", "export B=2"} <= set(given.splitlines())
    assert "--ntasks-per-node=4" in given
    assert "--time=02:00:00" in given
    assert "--nproc-per-node=4" in _words(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[all\n", "`--profile` must be an INI file"),
        ("[cluster]\n", "a section of the profile must be [all] or [ENGINE], got [cluster]"),
        ("[all]\npartitions = p\n", "a line of the profile must be one of the options, got 'partitions'"),
        ("[all]\ndevices = many\n", "'many' is not a valid int"),
    ],
)
def test_damaged_profile_is_an_error(text: str, message: str, tmp_path: Path) -> None:
    profile = tmp_path / "gaudi.ini"
    profile.write_text(text)

    assert message in " ".join(_refuse("--profile", str(profile), "--engine", "slurm", "train.py").split())


def test_submitted_job_has_a_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is not checked: a login node has no card."""
    _fake_engine(tmp_path, "sbatch")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    result = CliRunner().invoke(main, ["--engine", "slurm", "--run", "train.py"])
    assert (result.exit_code, "`squeue --me --name=train`" in result.output) == (0, True)


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ("a,,b", "`--hosts` must list host names"),
        ("n[1-", "`--hosts` must list host names"),
        ("n[1-x]", "`--hosts` must list host names"),
        ("n[4-1]", "a range of `--hosts` must be ascending, got '4-1'"),
    ],
)
def test_damaged_host_list_is_refused(hosts: str, message: str) -> None:
    assert message in _refuse("--engine", "mpirun", "--hosts", hosts, "train.py")


@pytest.mark.parametrize("script", ["null.py", "yes.py", "off.py", "y.py", "true.py"])
@pytest.mark.parametrize("engine", _KUBERNETES)
def test_name_of_a_manifest_is_text(engine: str, script: str) -> None:
    manifest = yaml.safe_load(_print(*MACHINES[engine], "--volume", "null:/data", script))

    assert manifest["metadata"]["name"] == script.removesuffix(".py")
    assert '{claimName: "null"}' in _print(*MACHINES[engine], "--volume", "null:/data", script)


@pytest.mark.parametrize(("rank", "expected"), [("0", "0 0"), ("5", "1 1")])
def test_ranks_of_open_mpi_get_lightnings_variables(rank: str, expected: str) -> None:
    words = _words(_print(*MACHINES["mpirun"], *SCRIPT))
    shell = ["/bin/bash", *words[words.index("bash") + 1 : words.index("python")]]
    variables = {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_RANK": str(int(rank) % 4),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    }
    command = [*shell, "sh", "-c", "echo $LOCAL_RANK $NODE_RANK"]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=True)

    assert done.stdout.split() == expected.split()


def test_slurm_gives_no_whole_machines_where_cards_are_isolated() -> None:
    text = _print("--engine", "slurm", "--gres", "gpu:HL-225:8", "train.py")

    assert "--exclusive" not in text
    assert "--mem=0" not in text


@pytest.mark.parametrize("engine", list(MACHINES))
@pytest.mark.parametrize(("nodes", "raises"), [(16, False), (17, True)])
def test_many_ranks_get_more_open_files(engine: str, nodes: int, raises: bool) -> None:
    """Above 128 ranks, as Intel's Megatron-LM asks for it."""
    text = _print(*MACHINES[engine], *_machines(engine, nodes), *SCRIPT)

    assert ("ulimit -n" in text) is raises


@pytest.mark.parametrize("engine", ["torchrun", "kubernetes"])
def test_agent_starts_with_more_open_files(engine: str, tmp_path: Path) -> None:
    """The shells of both accept the command."""
    agent = tmp_path / "torchrun"
    agent.write_text("#!/bin/sh\nulimit -n\n")
    agent.chmod(0o755)
    options = _machines(engine, 17)
    if engine == "kubernetes":
        words = _pod(engine, *options)["containers"][0]["command"]
    else:
        words = _words(_print(*MACHINES[engine], *options, *SCRIPT))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run(
        ["/bin/sh", "-c", f'ulimit -S -n {min(soft, 256)}; exec "$@"', "sh", *words],
        env=os.environ | {"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert int(done.stdout) == hard


@pytest.mark.parametrize("nodes", ["2", "128"])
def test_batch_script_is_valid(nodes: str) -> None:
    text = _print("--engine", "slurm", "--nodes", nodes, "--cpus", "4", *SCRIPT)

    assert subprocess.run(["/bin/bash", "-n"], input=text, text=True, check=False).returncode == 0


def test_pytorchjob_has_a_pod_for_each_machine() -> None:
    manifest = _manifest("kubernetes")

    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert {kind: replica["replicas"] for kind, replica in replicas.items()} == {"Master": 1, "Worker": 1}
    (container,) = replicas["Worker"]["template"]["spec"]["containers"]
    assert (container["name"], container["image"]) == ("pytorch", "image:1")
    assert container["command"][-3:] == list(SCRIPT)
    assert "--nnodes=2 --nproc-per-node=4" in container["command"][2]


def test_mpijob_has_a_launcher_without_cards() -> None:
    manifest = _manifest("kubernetes-mpi")

    assert manifest["spec"]["slotsPerWorker"] == 4
    replicas = manifest["spec"]["mpiReplicaSpecs"]
    (launcher,) = replicas["Launcher"]["template"]["spec"]["containers"]
    assert "resources" not in launcher
    assert launcher["command"][-4:] == ["python", *SCRIPT]
    assert replicas["Worker"]["replicas"] == 2


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--cpus", "6"), {"habana.ai/gaudi": 4, "hugepages-2Mi": "47500Mi", "memory": "205Gi", "cpu": 24}),
        # As Intel's quick start.
        (("--devices", "8"), {"habana.ai/gaudi": 8, "hugepages-2Mi": "95000Mi", "memory": "409Gi"}),
    ],
)
@pytest.mark.parametrize("engine", _KUBERNETES)
def test_pods_get_their_share_of_a_machine(engine: str, options: tuple[str, ...], expected: dict[str, object]) -> None:
    pod = _pod(engine, *options)
    (container,) = pod["containers"]
    assert container["resources"] == {"requests": expected, "limits": expected}
    assert container["securityContext"] == {"capabilities": {"add": ["SYS_NICE"]}}
    assert pod["hostIPC"] is True


@pytest.mark.parametrize(("restarts", "policy", "limit"), [(0, "Never", 0), (3, "OnFailure", 6)])
def test_pytorchjob_that_fails_by_a_bug_ends(restarts: int, policy: str, limit: int) -> None:
    """The operator counts the restarts of all pods, of which each failure restarts that of each machine."""
    options = ("--max-restarts", str(restarts), "--volume", "claim:/data")
    spec = _manifest("kubernetes", *options)["spec"]

    assert spec["runPolicy"] == {"backoffLimit": limit, "cleanPodPolicy": "Running"}
    for replica in spec["pytorchReplicaSpecs"].values():
        assert replica["restartPolicy"] == policy
        assert "--max-restarts=0" in replica["template"]["spec"]["containers"][0]["command"][2]


@pytest.mark.parametrize("engine", _KUBERNETES)
def test_pods_write_logs_and_checkpoints(engine: str) -> None:
    pod = _pod(engine, "--volume", "claim:/data", "--memory", "800Gi")
    (container,) = pod["containers"]
    assert container["env"] == [{"name": "HABANA_LOGS", "value": "/tmp/habana_logs"}]  # noqa: S108 - the pod's own.
    assert container["resources"]["limits"]["memory"] == "800Gi"
    assert container["volumeMounts"] == [{"name": "checkpoints", "mountPath": "/data"}]
    assert pod["volumes"] == [{"name": "checkpoints", "persistentVolumeClaim": {"claimName": "claim"}}]


def test_pytorchjob_serves_the_rendezvous_at_the_declared_port() -> None:
    """The operator takes the service's port and MASTER_PORT from the port of this name in the master's pod."""
    replicas = _manifest("kubernetes", "--port", "1234")["spec"]["pytorchReplicaSpecs"]

    for replica in replicas.values():
        (container,) = replica["template"]["spec"]["containers"]
        assert container["ports"] == [{"name": "pytorchjob-port", "containerPort": 1234}]
        assert '--master-port="$MASTER_PORT"' in container["command"][2]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--port", "1234"), "-x MASTER_PORT=1234"),
        (("--cpus", "6"), "--map-by ppr:4:node:PE=6 --bind-to core --rank-by slot"),
    ],
)
def test_launcher_of_an_mpijob_runs_mpirun(options: tuple[str, ...], text: str) -> None:
    assert text in _launcher_command(*options)[2]


@pytest.mark.parametrize(
    ("script", "name"), [("train.py", "train"), ("a/b/My_Script 2.py", "my-script-2"), ("7b.py", "job-7b")]
)
def test_job_is_named_after_the_script(script: str, name: str) -> None:
    assert f"--job-name={name}\n" in _print("--engine", "slurm", script)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "slurm", "--devices", "0"), "`--devices` must be at least 1, got 0"),
        (("--engine", "slurm", "--partition", "a b"), "`--partition` must be a name of the cluster's, got 'a b'"),
        (("--engine", "slurm", "--env", "1=2"), "`--env` must be NAME or NAME=VALUE, got '1'"),
        (("--engine", "slurm", "--env", "NO_SUCH_NAME"), "`--env NO_SUCH_NAME` must be a variable that is set here"),
        (
            ("--engine", "kubernetes", *_IMAGE, "--namespace", "A"),
            "`--namespace` must be a name of Kubernetes, got 'A'",
        ),
        (("--engine", "kubernetes", *_IMAGE, "--node-selector", "a"), "`--node-selector` must be KEY=VALUE, got 'a'"),
        (("--engine", "torchrun", "--devices", "9"), "`--devices` must be at most 8, the cards of a machine, got 9"),
        (("--engine", "mpirun", "--nodes", "1", "--hosts", "a,b"), "`--hosts` must have as many host names as"),
        (("--engine", "slurm", "--nodes", "-1"), "`--nodes` must be at least 1, got -1"),
        (("--engine", "torchrun", "--port", "0"), "`--port` must be from 1 to 65535, got 0"),
        (("--engine", "slurm", "--time", "soon"), "`--time` must be HH:MM:SS or DAYS-HH:MM:SS, got 'soon'"),
        (("--engine", "slurm", "--name", "My job"), "`--name` must be at most 53 lower-case letters"),
        (("--engine", "torchrun", "--nodes", "2"), "`--address` must be the address of the first machine"),
        (("--engine", "torchrun", "--min-nodes", "2"), "`--min-nodes` must be from 1 to `--nodes`, 1, got 2"),
        (("--engine", "torchrun", "--min-nodes", "1"), "`--max-restarts` must be at least 1 with `--min-nodes`"),
        (("--engine", "mpirun", "--nodes", "2", "--hosts", "a"), "`--hosts` must have as many host names as"),
        (("--engine", "ray", "--nodes", "2"), "`--address` must be the address of the head"),
        (("--engine", "kubernetes"), "`--image` must be a container image"),
        (("--engine", "kubernetes-mpi"), "`--image` must be a container image"),
        (("--engine", "kubernetes", *_IMAGE, "--max-restarts", "1"), "`--volume` must be CLAIM:PATH with"),
        (("--engine", "kubernetes", *_IMAGE, "--volume", "data"), "`--volume` must be the name of a Persistent"),
        (("--engine", "kubernetes", *_IMAGE, "--memory", "lots"), "`--memory` must be a quantity of Kubernetes"),
        (
            ("--engine", "slurm", "--nodes", "2", "--min-nodes", "1"),
            "`--min-nodes` must be left out with `--engine slurm`, which does not use it: it is for 'torchrun'",
        ),
        (
            ("--engine", "slurm", "--max-restarts", "3"),
            "it is for 'torchrun', 'kubernetes', 'kubernetes-mpi' and 'ray'",
        ),
        (("--engine", "torchrun", "--cpus", "4"), "`--cpus` must be left out with `--engine torchrun`"),
        (("--engine", "ray", "--port", "1"), "`--port` must be left out with `--engine ray`"),
        # It is not taken for the script.
        (("--engine", "slurm", "--node", "4"), "No such option"),
    ],
)
def test_invalid_option_is_an_error(arguments: tuple[str, ...], message: str) -> None:
    assert message in " ".join(_refuse(*arguments, "train.py").split())


def test_options_after_the_script_are_the_scripts() -> None:
    assert _words(_print("--engine", "torchrun", "train.py", "--nodes", "4"))[-3:] == ["train.py", "--nodes", "4"]


def test_run_passes_the_script_to_the_engine(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "sbatch"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/submitted\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    result = CliRunner().invoke(main, ["--engine", "slurm", "--run", "train.py"])

    assert result.exit_code == 3
    assert (tmp_path / "submitted").read_text() == _print("--engine", "slurm", "train.py").rstrip("\n")


def test_run_names_a_missing_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")

    result = CliRunner().invoke(main, ["--engine", "slurm", "--run", "train.py"])

    assert result.exit_code == 2
    assert "`sbatch` is not installed on this machine" in result.output


def _fake_engine(folder: Path, name: str) -> None:
    program = folder / name
    program.write_text(f"#!/bin/sh\nenv > {folder}/environment\n")
    program.chmod(0o755)


def _run_torchrun(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, because it becomes the engine's."""
    _fake_engine(folder, "torchrun")
    program = "from hpu_launch.cli import main; main()"
    command = [sys.executable, "-c", program, "--engine", "torchrun", "--run", *options, "train.py"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HPU_SIM", "MASTER_"))}
    environment = {**own, **variables, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("installed", "report"), [(True, "Checks of "), (False, "Gaudi cards: none found.")])
def test_machine_is_checked_by_the_doctor_or_by_hpu_info(
    installed: bool, report: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This machine has no card, so nothing starts."""
    _fake_engine(tmp_path, "torchrun")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if installed else None)

    result = CliRunner().invoke(main, ["--engine", "torchrun", "--run", "train.py"])

    assert result.exit_code == 1
    assert report in result.output
    assert "training cannot start on this machine; `--no-checks` starts it nevertheless" in result.output
    assert not (tmp_path / "environment").exists()


def test_run_without_checks(tmp_path: Path) -> None:
    done = _run_torchrun(tmp_path, "--no-checks")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "environment").exists()


def test_checks_leave_the_environment_as_it_is(tmp_path: Path) -> None:
    """The bridge's import sets an address and a port, which torchrun would give to the ranks."""
    done = _run_torchrun(tmp_path, **machine_env(2, tmp_path))

    assert done.returncode == 0, done.stderr
    assert "MASTER_PORT" not in (tmp_path / "environment").read_text()

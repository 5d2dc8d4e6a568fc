"""Tests that take long or need special rights, which CI does not run."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import nox
from nox.command import CommandFailed

from sessions.environments import DEFAULT_CONSTRAINTS, install, isolated_sim_env
from sessions.packages import PACKAGES, ROOT, group
from sessions.testing import INTEGRATION, install_suite, per_suite, suite_paths


@nox.session(default=False)
@per_suite
def slow(session: nox.Session, suite: str) -> None:
    """Run the tests marked `slow`, which `tests` leaves out; "slow(hpu-core)" those of one suite."""
    # The planner takes models of transformers.
    install_suite(session, suite, *(["hpu-export[hf]"] if suite == INTEGRATION else []))
    # Exit code 5 is a suite without such tests.
    session.run("pytest", "-m", "slow", *(session.posargs or suite_paths(suite)), success_codes=[0, 5])


@nox.session(default=False)
def op_sweep(session: nox.Session) -> None:
    """Compare all operators of torch's operator database on the simulated device with the CPU; `-- --dtype float32`.

    The second time, the device is an asynchronous one, whose results have what torch's Meta kernels tell.
    """
    install(session, "hpu-sim", *group("sweep"))
    for is_asynchronous in ("0", "1"):
        env = isolated_sim_env(session) | {"HPU_SIM_ASYNC": is_asynchronous}
        session.run("python", "packages/hpu-sim/sweep/op_sweep.py", *session.posargs, env=env)


# Without -fsanitize=vptr: torch hides the type information of its classes.
_SANITIZERS = "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined"


@nox.session(default=False)
def sanitizers(session: nox.Session) -> None:
    """Run the device's tests, then a tenth of the sweep, with AddressSanitizer and UndefinedBehaviorSanitizer.

    The build takes minutes. `-- PATH` runs these tests only, `-- --sweep --dtype float32` the sweep with these options.
    """
    install_suite(session, "hpu-sim")
    session.install("-c", DEFAULT_CONSTRAINTS, *group("sweep"))
    folder = Path(session.create_tmp()).resolve()
    compiler = os.environ.get("CXX") or shutil.which("c++") or session.error("needs a C++ compiler")
    wrapper = folder / "c++"
    # The compiler itself must not load the sanitizers.
    wrapper.write_text(
        f'#!/bin/sh\nunset LD_PRELOAD\nexec {compiler} {_SANITIZERS} -fno-omit-frame-pointer -g1 "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o755)
    # Python is not built with the sanitizers, so it has to load them first, and libstdc++ for the exceptions.
    names = ("libasan.so", "libubsan.so", "libstdc++.so.6")
    paths = [
        subprocess.check_output([compiler, f"-print-file-name={name}"], text=True)  # noqa: S603 - the compiler of above.
        for name in names
    ]
    env = isolated_sim_env(session) | {
        "CXX": str(wrapper),
        "HPU_SIM_CACHE": str(folder / "cache"),
        "LD_PRELOAD": " ".join(map(str.strip, paths)),
        # Python and torch never free some of their memory.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }
    options = session.posargs
    if options[:1] != ["--sweep"]:
        session.run("pytest", *(options or ["packages/hpu-sim/tests/csrc"]), env=env)
    if not options or options[0] == "--sweep":
        sweep = options[1:] or ["--dtype", "float32", "--every", "10"]
        session.run("python", "packages/hpu-sim/sweep/op_sweep.py", *sweep, env=env)


# What the programs of the planner's corpus import beside the group `third_party`. Most require torchvision, which must
# stay in a folder of its own.
_CORPUS = (
    "denoising-diffusion-pytorch", "diffusers", "einops", "einx", "ema-pytorch", "frozendict", "ftfy", "loguru",
    "monai", "open-clip-torch", "pillow", "segmentation-models-pytorch", "tensorboard", "timm", "torch-einops-utils",
    "torch-geometric", "vit-pytorch", "wcwidth", "x-transformers", "xxhash",
)  # fmt: skip


@nox.session(default=False)
def third_party(session: nox.Session) -> None:
    """Train with DeepSpeed, accelerate, transformers, PEFT, litgpt, torchmetrics and torchvision on simulated cards.

    hpu-export's programs compare what litgpt, timm and torchvision load with what was trained. The planner's corpus is
    planned.
    """
    install(
        session,
        "hpu-compat",
        "hpu-export[hf]",
        "hpu-sim",
        "hpu-ddp",
        "hpu-fsdp[lightning]",
        "hpu-kernels",
        *group("third_party"),
        *group("test"),
    )
    # litgpt pins libraries that transformers needs in a newer version.
    session.install("--no-compile", "--no-deps", "-c", DEFAULT_CONSTRAINTS, "litgpt")
    # The machine that the tests ask for, so that none needs a process of its own.
    command = ("hpu-sim", "run", "--quiet", "--devices", "2", "-m", "pytest")
    env = isolated_sim_env(session) | {"PT_HPU_LAZY_MODE": "1"}
    session.run(*command, *(session.posargs or ["packages/hpu-sim/third_party"]), env=env)
    # These start machines of their own, in eager mode.
    sharded = ("packages/hpu-fsdp/third_party", "packages/hpu-fsdp/tests/test_context_parallel.py")
    session.run("pytest", *sharded, env=isolated_sim_env(session))
    fifty = ("hpu-sim", "run", "--quiet", "-m", "pytest", "packages/hpu-kernels/third_party")
    session.run(*fifty, env=isolated_sim_env(session))
    # Beside a CPU build of torch, Lightning and transformers cannot be imported where torchvision is installed.
    folder = Path(session.create_tmp()).resolve() / "torchvision"
    options = ("--no-compile", "--no-deps", "--target", str(folder), "-c", DEFAULT_CONSTRAINTS)
    session.install(*options, "pillow", "timm", "torchvision")
    env = isolated_sim_env(session) | {"TORCHVISION_FOLDER": str(folder)}
    session.run("pytest", "packages/hpu-compat/third_party", "packages/hpu-export/third_party", env=env)
    session.install("--no-compile", "-c", DEFAULT_CONSTRAINTS, "rich", "scipy")
    session.install("--no-compile", "--no-deps", "-c", DEFAULT_CONSTRAINTS, *_CORPUS)
    install(session, "hpu-precision", "hpu-deepspeed")
    session.run("python", "packages/hpu-sim/third_party/corpus/run.py", env=env)


@nox.session(default=False)
def upstream(session: nox.Session) -> None:
    """Run tests and programs of other projects: `-- FOLDER ...`; print what fails, and what failed last time.

    Such as the folders `tests` and `examples` of Lightning, and `tests` of lightning-habana.
    """
    if not session.posargs:
        session.error("needs folders: nox -s upstream -- ../pytorch-lightning/tests/tests_fabric")
    install(session, *PACKAGES, "hpu-deepspeed[deepspeed]", *group("test"), *group("third_party"))
    failed = []
    for folder in map(Path, session.posargs):
        programs = sorted(file for file in folder.rglob("*.py") if "__main__" in file.read_text(encoding="utf-8"))
        commands: list[tuple[str, ...]] = [(str(program),) for program in programs]
        if next(folder.rglob("test_*.py"), None) is not None:
            # pytest notes in the folder's cache what has failed.
            options = ("-W", "default", "--continue-on-collection-errors", "--failed-first", "-rfE")
            commands = [("-m", "pytest", "--cache-show", "cache/lastfailed", str(folder))]
            commands.append(("-m", "pytest", *options, str(folder)))
        for command in commands:
            with contextlib.suppress(CommandFailed):
                session.run("hpu-sim", "run", "--quiet", "--devices", "2", *command, env=isolated_sim_env(session))
                continue
            failed.append(command[-1])
    record = Path(session.create_tmp(), "failed.txt")
    last = record.read_text(encoding="utf-8") if record.exists() else ""
    record.write_text(", ".join(failed), encoding="utf-8")
    session.log(f"failed: {', '.join(failed) or 'none'}; failed last time: {last or 'none'}")
    if failed:
        session.error("a folder's tests, or programs, failed")


@nox.session(default=False)
def faults(session: nox.Session) -> None:
    """Have a rank fail in every way, on one machine and two, and print a table; `-- --runs 1` for a short one.

    `-- interruptions` interrupts a training in every way and at every place instead, and resumes it; `-- healthy` runs
    jobs that must not end.
    """
    other = next((name for name in ("healthy", "interruptions") if session.posargs[:1] == [name]), "faults")
    run_trial(session, f"{other}.py")


@nox.session(default=False)
def scale(session: nox.Session) -> None:
    """Measure failure detection of 8 to 1,024 ranks, and print a table; `-- --ranks 8 64` for a part."""
    run_trial(session, "scale.py")


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Train 50,000 steps on 8 simulated cards; fail if memory grows; `-- --ranks 2 --steps 5000` for a short one."""
    run_trial(session, "soak.py")


@nox.session(default=False)
def engines(session: nox.Session) -> None:
    """Train with the installed engines (torchrun, Open MPI, SLURM, Ray), killing ranks; `-- torchrun` for one."""
    run_trial(session, "engines.py", "hpu-launch", "hpu-ray[lightning,ray]")


def run_trial(session: nox.Session, script: str, *requirements: str) -> None:
    """Run a program of tests/trials."""
    packages = ("hpu-ddp", "hpu-deepspeed[deepspeed]", "hpu-fsdp", "hpu-sim")
    install(session, *packages, *requirements, *group("trials"))
    path = str(ROOT / "tests" / "support")
    session.run("python", f"tests/trials/{script}", *session.posargs, env={"PYTHONPATH": path})

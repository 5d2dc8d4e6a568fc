"""Decides what the collected facts mean: whether training can start, which release this is, what does not match."""

from collections.abc import Iterator
from dataclasses import dataclass

from hpu_core import releases
from hpu_core.discovery._synapse import driver_release
from hpu_core.info._collect import Facts
from hpu_core.releases import Mismatch, Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that is not as it should be.

    Attributes:
        stops_training: Whether training cannot start because of it.
        what: What is wrong.
        todo: What to do about it.
    """

    stops_training: bool
    what: str
    todo: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the facts mean.

    Attributes:
        release: The row of the release table that this machine is; None when that cannot be told.
        problems: What is wrong, the problems that stop training first.
    """

    release: Release | None
    problems: tuple[Problem, ...]

    @property
    def can_train(self) -> bool:
        """Whether training can start."""
        return not any(problem.stops_training for problem in self.problems)


def judge(facts: Facts) -> Verdict:
    """Judge the facts against what training needs and against the release table."""
    release = releases.find(facts.synapse.version) if facts.synapse else None
    problems = [
        *_software(facts),
        *_cards(facts),
        *_visible_modules(facts),
        *_release(facts, release),
    ]
    problems.sort(key=lambda problem: not problem.stops_training)
    return Verdict(release=release, problems=tuple(problems))


def _software(facts: Facts) -> Iterator[Problem]:
    if facts.torch_error is not None:
        yield Problem(
            stops_training=True,
            what=f"torch cannot be imported: {facts.torch_error}",
            todo="Try `TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c 'import torch'`: if that works, the back-end that the "
            "message names is broken; if not, torch itself is.",
        )
    if not facts.bridge.installed:
        yield Problem(
            stops_training=True,
            what="the Gaudi PyTorch bridge (habana_frameworks) is not installed",
            todo="Use Intel's PyTorch image or install the habana-torch-plugin of your SynapseAI release. Without a "
            "card, `pip install hpu-sim` and start the program with `hpu-sim run`.",
        )
    if facts.lightning.error is not None:
        yield Problem(
            stops_training=True,
            what="no Lightning can be used",
            todo=facts.lightning.error,
        )


def _cards(facts: Facts) -> Iterator[Problem]:
    if not facts.devices:
        yield Problem(
            stops_training=True,
            what="no Gaudi card was found",
            todo="On a machine with cards, check that the driver is loaded and that this container was given cards "
            "(HABANA_VISIBLE_DEVICES).",
        )
        return
    unfit = [device for device in facts.devices if not device.is_operational]
    if unfit:
        names = ", ".join(f"{device.index} ({device.status})" for device in unfit)
        yield Problem(
            stops_training=len(unfit) == len(facts.devices),
            what=f"not operational, so not counted: card {names}",
            todo="Wait for a reset to end; see `dmesg` for the driver's reason. A card without a device node was not "
            "given to this container.",
        )
    if facts.bridge.loaded and not any(finding.devices for finding in facts.findings if finding.source == "bridge"):
        yield Problem(
            stops_training=True,
            what="the bridge sees no card, although there are cards",
            todo="Check that /dev/accel (or /dev/hl0) can be opened by this user and in this container, and that the "
            "driver is of the bridge's release.",
        )


def _visible_modules(facts: Facts) -> Iterator[Problem]:
    if facts.visible_modules_error is not None:
        yield Problem(
            stops_training=True,
            what="HABANA_VISIBLE_MODULES cannot be honoured",
            todo=facts.visible_modules_error,
        )
    elif facts.usable == 0 and any(device.is_operational for device in facts.devices):
        yield Problem(
            stops_training=True,
            what=f"HABANA_VISIBLE_MODULES={facts.visible_modules!r} leaves no operational card",
            todo="Name the module ids of operational cards, or unset it to use every card.",
        )


def _release(facts: Facts, release: Release | None) -> Iterator[Problem]:
    if not facts.devices and not facts.bridge.installed:
        # Not a Gaudi machine: there is nothing to compare.
        return
    if facts.synapse is None:
        yield Problem(
            stops_training=False,
            what="the SynapseAI release cannot be told, so nothing is compared with the release table",
            todo="Nothing: the simulator stands for no certain release here."
            if facts.bridge.simulated
            else "Look whether habana-torch-plugin is installed as a distribution and whether `hl-smi -v` works.",
        )
    elif release is None:
        newest = releases.releases()[-1].release
        yield Problem(
            stops_training=False,
            what=f"SynapseAI {facts.synapse.version} is not in the release table, which ends at {newest}",
            todo="Update hpu-core; a release that it does not know may work and is not compared with anything.",
        )
    else:
        for mismatch in _mismatches(facts, release):
            yield _mismatch_problem(facts, release, mismatch)
        yield from _drivers(facts, release)


def _mismatches(facts: Facts, release: Release) -> tuple[Mismatch, ...]:
    generation = next((device.generation for device in facts.devices if device.generation), None)
    return releases.match(
        release,
        torch=facts.torch,
        python=facts.python,
        lightning=facts.lightning.installed.get(facts.lightning.used or ""),
        generation=generation,
    )


def _mismatch_problem(facts: Facts, release: Release, mismatch: Mismatch) -> Problem:
    """Say what a mismatch means here."""
    name = f"SynapseAI {release.release}"
    todo = {
        "torch": f"Use the torch that comes with {name}, {mismatch.expected}: the bridge refuses any other.",
        "python": f"Use Python {mismatch.expected} with {name}.",
        "lightning": f"Nothing if it works: hpu-core supports Lightning 2.0 and newer; {name} was tried with "
        f"{mismatch.expected}.",
        "generation": f"Install a SynapseAI release for {mismatch.found}; {name} supports {mismatch.expected}.",
    }[mismatch.subject]
    if facts.bridge.simulated:
        todo = f"Nothing for the simulator, which runs on stock torch. On a card: {todo}"
    # The bridge compares torch's version when it is imported. Once it is loaded, it has found nothing wrong.
    stops = mismatch.subject == "torch" and not facts.bridge.loaded
    return Problem(
        stops_training=stops,
        what=f"{mismatch.subject} {mismatch.found} with {name}, which goes with {mismatch.expected}",
        todo=todo,
    )


def _drivers(facts: Facts, release: Release) -> Iterator[Problem]:
    for driver in sorted({device.driver_version for device in facts.devices if device.driver_version}):
        parsed = driver_release(driver)
        if parsed is not None and releases.find(parsed) != release:
            yield Problem(
                stops_training=False,
                what=f"driver {driver} with SynapseAI {release.release}",
                todo=f"Install the driver of {release.release} on the host, or the software of the driver's release.",
            )

"""Diagnosis of cards and software: what prevents training, and mismatches with the SynapseAI release."""

from collections.abc import Iterator
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from hpu_core import releases
from hpu_core.info import SystemInfo
from hpu_core.install_hints import install_command
from hpu_core.releases import Release


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem.

    Attributes:
        blocks_training: Whether training cannot start because of it.
        message: The problem.
        hint: What the user can do about it.
    """

    blocks_training: bool
    message: str
    hint: str

    @classmethod
    def error(cls, message: str, hint: str) -> "Problem":
        """Return a problem that blocks training."""
        return cls(blocks_training=True, message=message, hint=hint)

    @classmethod
    def note(cls, message: str, hint: str) -> "Problem":
        """Return a problem that does not block training."""
        return cls(blocks_training=False, message=message, hint=hint)


def diagnose(system: SystemInfo) -> list[Problem]:
    """Check a machine against the requirements of training and the release table."""
    return [*_check_versions_installed(system), *_check_devices(system), *_check_release(system)]


def _check_versions_installed(system: SystemInfo) -> Iterator[Problem]:
    if system.torch_error is not None:
        yield Problem.error(
            f"torch cannot be imported: {system.torch_error}",
            "Try `TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -c 'import torch'`: if that works, the backend in the message "
            "is broken, otherwise torch itself is.",
        )
    if not system.bridge.installed:
        yield Problem.error(
            "the Gaudi PyTorch bridge (habana_frameworks) is not installed",
            "Use Intel's PyTorch image or install the habana-torch-plugin of your SynapseAI release. Without a card, "
            f"`{install_command('hpu-sim')}` and start the program with `hpu-sim run`.",
        )
    if system.lightning.error is not None:
        yield Problem.error("no usable Lightning is installed", system.lightning.error)


def _check_devices(system: SystemInfo) -> Iterator[Problem]:
    faulty = [device for device in system.devices if not device.is_operational]
    if not system.devices:
        yield Problem.error(
            "no Gaudi card was found",
            "On a machine with cards, check that the driver is loaded and that this container was given cards "
            "(HABANA_VISIBLE_DEVICES).",
        )
    elif faulty:
        names = ", ".join(f"{device.pci_address or device.module_id} ({device.status})" for device in faulty)
        yield Problem(
            blocks_training=len(faulty) == len(system.devices),
            message=f"not operational and not counted: card {names}",
            hint="Wait for a reset to end; `dmesg` has the driver's log. A card without a device node was not given "
            "to this container.",
        )
    counted = any(source.devices for source in system.sources if source.source == "bridge")
    if system.devices and system.bridge.loaded and not counted:
        yield Problem.error(
            "the bridge reports no card, although there are cards",
            "Check that this user and container can open /dev/accel (or /dev/hl0), and that driver and bridge are of "
            "the same release.",
        )
    if system.visible_modules_error is not None:
        yield Problem.error("HABANA_VISIBLE_MODULES is invalid", system.visible_modules_error)
    elif system.usable == 0 and len(faulty) < len(system.devices):
        yield Problem.error(
            f"HABANA_VISIBLE_MODULES={system.visible_modules!r} allows no operational card",
            "Set it to module ids of operational cards, or unset it to use all cards.",
        )


def _check_release(system: SystemInfo) -> Iterator[Problem]:
    if system.synapse is None:
        if system.devices and not system.bridge.simulated:
            yield Problem.note(
                "the SynapseAI release is unknown, so versions are not compared with the release table",
                "Check that the distribution habana-torch-plugin is installed.",
            )
        return
    release = releases.find(system.synapse.version)
    if release is None:
        latest = releases.releases()[-1].release
        yield Problem.note(
            f"SynapseAI {system.synapse.version} is not in the release table, which ends at {latest}",
            "Update hpu-core. An unknown release may work, but its versions are not compared.",
        )
    else:
        yield from _check_versions(system, release)


def _check_versions(system: SystemInfo, release: Release) -> Iterator[Problem]:
    """Compare versions and generation with a release's row; what is unknown, here or there, matches."""
    name = f"SynapseAI {release.release}"
    lightning = system.lightning.installed.get(system.lightning.used or "")
    generation = next((device.generation for device in system.devices if device.generation), None)
    python, generations = release.python or (), release.generations or ()
    found: list[tuple[str, str, str, str]] = []
    if system.torch and release.torch and _minor(system.torch) != _minor(release.torch):
        hint = f"Use torch {release.torch}, which comes with {name}: the bridge rejects other versions."
        found.append(("torch", system.torch, release.torch, hint))
    if python and _minor(system.python) not in map(_minor, python):
        expected = " or ".join(python)
        found.append(("python", system.python, expected, f"Use Python {expected} with {name}."))
    # Nightly builds have pre-release versions.
    if lightning and release.lightning and not SpecifierSet(release.lightning).contains(lightning, prereleases=True):
        hint = f"Nothing if it works: hpu-core supports Lightning 2.0 and newer, and {name} was tested with "
        found.append(("lightning", lightning, release.lightning, f"{hint}{release.lightning}."))
    if generation and generations and generation not in generations:
        expected = " or ".join(generations)
        hint = f"Install a SynapseAI release for {generation}; {name} supports {expected}."
        found.append(("generation", generation, expected, hint))
    on_card = "Nothing for the simulator, which runs on stock torch. On a card: " if system.bridge.simulated else ""
    for subject, installed, expected, hint in found:
        yield Problem(
            # The bridge checks torch's version on import, so a loaded bridge has accepted it.
            blocks_training=subject == "torch" and not system.bridge.loaded,
            message=f"{subject} {installed} does not match {name}, which is for {expected}",
            hint=f"{on_card}{hint}",
        )


def _minor(version: str) -> tuple[int, ...]:
    """Return major and minor version; Intel's builds of torch have versions such as "2.11.0a0+git009b5f6"."""
    return Version(version).release[:2]

"""The Lightning package that this process uses: `lightning` or `pytorch_lightning`.

Both can be installed (the distribution `lightning` requires `pytorch-lightning`), but their classes are not
interchangeable: a Trainer of one rejects strategies and modules of the other. `current` decides once per process, by
the rules of `decide`.
"""

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Final, Literal

from packaging.version import InvalidVersion, Version

from hpu_core import _lightning_2_0

FrameworkName = Literal["lightning", "pytorch_lightning"]

OVERRIDE: Final = "HPU_CORE_FRAMEWORK"
"""Environment variable that selects the framework."""

_MIN_VERSION: Final = Version("2.0")

# Published by an attacker (Lightning-AI/pytorch-lightning, pull request 21691).
_COMPROMISED: Final = frozenset({Version("2.6.2"), Version("2.6.3")})

DISTRIBUTIONS: Final[dict[FrameworkName, str]] = {"lightning": "lightning", "pytorch_lightning": "pytorch-lightning"}
"""Names of distributions by import name, in order of preference."""

NAMES: Final = tuple(DISTRIBUTIONS)
"""Import names."""

# The framework of the first Trainer, Fabric or LightningCLI that may use HPU.
_preferred: FrameworkName | None = None

_PYTORCH: dict[FrameworkName, str] = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_FABRIC: dict[FrameworkName, str] = {"lightning": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}


@dataclass(frozen=True, slots=True)
class Framework:
    """One of the two packages that Lightning is published as.

    Attributes:
        name: Import name.
        version: Installed version.
    """

    name: FrameworkName
    version: Version

    def pytorch(self, module: str = "") -> ModuleType:
        """Import a module of the Trainer API: `pytorch("strategies")` is `lightning.pytorch.strategies`."""
        return self._import(f"{_PYTORCH[self.name]}.{module}".rstrip("."))

    def fabric(self, module: str = "") -> ModuleType:
        """Import a module of the Fabric API: `fabric("utilities")` is `lightning.fabric.utilities`."""
        return self._import(f"{_FABRIC[self.name]}.{module}".rstrip("."))

    def _import(self, name: str) -> ModuleType:
        if _lightning_2_0.applies_to(self.version):
            _lightning_2_0.hmp_hook.install()
        return importlib.import_module(name)


@functools.cache
def current() -> Framework:
    """Return the framework of this process. The first call decides, by `decide`, for the rest of the process."""
    return decide()


def decide() -> Framework:
    """Return the framework to use by the first rule that applies, without importing it.

    1. HPU_CORE_FRAMEWORK, if it is set.
    2. The framework that this process has imported, if it has imported exactly one.
    3. The framework that `prefer` named, if both are imported.
    4. The framework that is installed; `lightning` if both are.

    Raises:
        ModuleNotFoundError: No Lightning is installed, or not the one that HPU_CORE_FRAMEWORK names.
        ImportError: The framework is too old, or a compromised release.
        ValueError: HPU_CORE_FRAMEWORK has an unknown value.
    """
    names = imported()
    name = _override() or (names[0] if len(names) == 1 else _preferred or _first_installed())
    return Framework(name, _validated_version(name))


def prefer(name: FrameworkName) -> None:
    """Have `decide` choose a framework if both are imported, unless another one is preferred already.

    A library may import the one that the program does not use.
    """
    global _preferred  # noqa: PLW0603 - as the decision, one per process.
    _preferred = _preferred or name


def imported() -> tuple[FrameworkName, ...]:
    """Return the frameworks that this process has imported."""
    return tuple(name for name in NAMES if sys.modules.get(name) is not None)


def import_error(name: FrameworkName) -> Exception | None:
    """Return the error for using a framework on HPU in this process, None if it can be used."""
    try:
        framework = current()
    except (ImportError, ValueError) as error:
        return error
    if framework.name == name:
        return None
    return ImportError(
        f"the Gaudi packages use {framework.name} in this process, but this Trainer or Fabric is from {name}: import "
        f"only one of them, set {OVERRIDE}={name}, or pass `accelerator='cpu'` here"
    )


def describe(instance: object) -> str:
    """Return the representation of an instance of one of the framework's classes, for its `__repr__`.

    Lightning's error for a strategy or accelerator of the other framework shows nothing but this representation, so it
    contains the hint if both frameworks are imported.
    """
    framework = current()
    name = type(instance).__name__
    others = [other for other in imported() if other != framework.name]
    if not others:
        return f"<{name} of {framework.name} {framework.version}>"
    return (
        f"<{name} of {framework.name} {framework.version}; it does not work with {others[0]}, which is imported too: "
        f"to use {others[0]}, set {OVERRIDE}={others[0]} or import it before hpu_core>"
    )


def _override() -> FrameworkName | None:
    value = os.environ.get(OVERRIDE, "")
    name = next((name for name in NAMES if name == value), None)
    if value and name is None:
        raise ValueError(f"{OVERRIDE} must be 'lightning' or 'pytorch_lightning', got {value!r}")
    if name is not None and not _is_installed(name):
        raise ModuleNotFoundError(
            f"{OVERRIDE} is {name!r}, which is not installed: pip install {DISTRIBUTIONS[name]!r}", name=name
        )
    return name


def _first_installed() -> FrameworkName:
    for name in NAMES:
        if _is_installed(name):
            return name
    raise ModuleNotFoundError(
        "this part of hpu-core needs PyTorch Lightning, but neither `lightning` nor `pytorch_lightning` is installed: "
        "pip install lightning",
        name=NAMES[0],
    )


def _is_installed(name: FrameworkName) -> bool:
    return name in imported() or importlib.util.find_spec(name) is not None


def _validated_version(name: FrameworkName) -> Version:
    """Return the version of a framework. It is not imported first, because a compromised release must not run."""
    version = _version(name)
    if version in _COMPROMISED:
        raise ImportError(
            f"{name} {version} is a compromised release and must not be imported: uninstall it, treat the secrets of "
            f'this machine as leaked, and pip install "{DISTRIBUTIONS[name]}>=2.6.4"',
            name=name,
        )
    if version.release < _MIN_VERSION.release:
        message = f'hpu-core needs {name} 2.0 or newer, got {version}: pip install -U "{DISTRIBUTIONS[name]}>=2.0"'
        raise ImportError(message, name=name)
    return version


def _version(name: FrameworkName) -> Version:
    try:
        text = importlib.metadata.version(DISTRIBUTIONS[name])
    except importlib.metadata.PackageNotFoundError:
        # A source tree on the path, or a nightly build under another distribution name.
        text = str(getattr(importlib.import_module(name), "__version__", None))
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ImportError(
            f"`{name}.__version__` must be a version, got {text!r}: reinstall {DISTRIBUTIONS[name]!r}", name=name
        ) from error

"""Which Lightning this process uses: `lightning` or `pytorch_lightning`. Decided once, and only here.

Both may be installed (the distribution `lightning` even requires `pytorch-lightning`), but their classes do not mix:
a Trainer of one rejects the strategies and modules of the other. See `decide` for the order of the rules.
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

from hpu_core import registration

FrameworkName = Literal["lightning", "pytorch_lightning"]

# The order is the preference when nothing else decides.
NAMES: Final[tuple[FrameworkName, ...]] = ("lightning", "pytorch_lightning")

OVERRIDE: Final = "HPU_CORE_FRAMEWORK"

_OLDEST = Version("2.0")

# The first Lightning that imports nothing of the bridge's.
_WITHOUT_HMP = Version("2.1")

# These releases were published by an attacker (Lightning-AI/pytorch-lightning, pull request 21691).
_COMPROMISED = frozenset({Version("2.6.2"), Version("2.6.3")})

_DISTRIBUTIONS: dict[FrameworkName, str] = {"lightning": "lightning", "pytorch_lightning": "pytorch-lightning"}
_PYTORCH: dict[FrameworkName, str] = {"lightning": "lightning.pytorch", "pytorch_lightning": "pytorch_lightning"}
_FABRIC: dict[FrameworkName, str] = {"lightning": "lightning.fabric", "pytorch_lightning": "lightning_fabric"}


@dataclass(frozen=True, slots=True)
class Framework:
    """One of the two packages that Lightning is published as.

    Attributes:
        name: The import name.
        version: The installed version.
    """

    name: FrameworkName
    version: Version

    def pytorch(self, module: str = "") -> ModuleType:
        """Import a module of the Trainer's half: `pytorch("strategies")` is `lightning.pytorch.strategies`."""
        return self._import(f"{_PYTORCH[self.name]}.{module}".rstrip("."))

    def fabric(self, module: str = "") -> ModuleType:
        """Import a module of Fabric's half: `fabric("utilities")` is `lightning.fabric.utilities`."""
        return self._import(f"{_FABRIC[self.name]}.{module}".rstrip("."))

    def _import(self, name: str) -> ModuleType:
        """Import a module of Lightning's."""
        if self.version < _WITHOUT_HMP:
            # Where there is a card, 2.0 imports HMP, which newer bridges have not. The hook that spares it that is
            # placed by `import torch`, and a simulator that starts later is a card that was not there yet.
            registration.autoload()
        return importlib.import_module(name)


@functools.cache
def current() -> Framework:
    """Return the framework of this process; the first call decides and later ones repeat its answer.

    Raises:
        ModuleNotFoundError: No Lightning is installed.
        ImportError: The one to use is too old, or is a release that must not be used.
        ValueError: HPU_CORE_FRAMEWORK names no framework.
    """
    return decide()


def decide() -> Framework:
    """Decide anew which framework to use, importing none.

    The first rule that applies decides:

    1. HPU_CORE_FRAMEWORK, when it is set.
    2. The one that this process has imported, when it has imported exactly one.
    3. The one that is installed; `lightning` when both are.

    Raises:
        ModuleNotFoundError: No Lightning is installed, or not the one that HPU_CORE_FRAMEWORK names.
        ImportError: The one to use is too old, or is a release that must not be used.
        ValueError: HPU_CORE_FRAMEWORK names no framework.
    """
    name = _override() or _only_imported() or _first_installed()
    return Framework(name, _checked_version(name))


def imported() -> tuple[FrameworkName, ...]:
    """Return the frameworks that this process has imported, by whomever."""
    return tuple(name for name in NAMES if sys.modules.get(name) is not None)


def describe(instance: object) -> str:
    """Return a representation of an object that subclasses one of the framework's classes, for its `__repr__`.

    Where both frameworks are imported it says which one takes the object: Lightning's error for a foreign strategy or
    accelerator prints nothing but this representation.
    """
    framework = current()
    name = type(instance).__name__
    others = [other for other in imported() if other != framework.name]
    if not others:
        return f"<{name} of {framework.name} {framework.version}>"
    return (
        f"<{name} of {framework.name} {framework.version}; {others[0]}, which this program imports too, does not take "
        f"it: to use that one, set {OVERRIDE}={others[0]} or import it before hpu_core>"
    )


def _override() -> FrameworkName | None:
    value = os.environ.get(OVERRIDE, "")
    if not value:
        return None
    for name in NAMES:
        if value == name:
            if not _is_installed(name):
                raise ModuleNotFoundError(
                    f"{OVERRIDE} asks for {name!r}, which is not installed: pip install {_DISTRIBUTIONS[name]!r}",
                    name=name,
                )
            return name
    raise ValueError(f"{OVERRIDE} must be 'lightning' or 'pytorch_lightning', got {value!r}")


def _only_imported() -> FrameworkName | None:
    names = imported()
    return names[0] if len(names) == 1 else None


def _first_installed() -> FrameworkName:
    for name in NAMES:
        if _is_installed(name):
            return name
    raise ModuleNotFoundError(
        "this part of hpu-core needs PyTorch Lightning, and neither `lightning` nor `pytorch_lightning` is installed: "
        'pip install "hpu-core[lightning]"',
        name=NAMES[0],
    )


def _is_installed(name: FrameworkName) -> bool:
    return name in imported() or importlib.util.find_spec(name) is not None


def _checked_version(name: FrameworkName) -> Version:
    """Return the version of `name`, which is not imported for it: a compromised release must not get to run.

    Raises:
        ImportError: The version is too old, compromised or unreadable.
    """
    version = _version(name)
    if version in _COMPROMISED:
        raise ImportError(
            f"{name} {version} is a compromised release and must not be imported: uninstall it, treat the secrets of "
            f'this machine as leaked, and pip install "{_DISTRIBUTIONS[name]}>=2.6.4"',
            name=name,
        )
    if version.release < _OLDEST.release:
        message = f'hpu-core needs {name} 2.0 or newer, found {version}: pip install -U "{_DISTRIBUTIONS[name]}>=2.0"'
        raise ImportError(message, name=name)
    return version


def _version(name: FrameworkName) -> Version:
    try:
        text = importlib.metadata.version(_DISTRIBUTIONS[name])
    except importlib.metadata.PackageNotFoundError:
        # A source tree on the path, or a nightly build under another distribution name.
        text = str(getattr(importlib.import_module(name), "__version__", None))
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ImportError(
            f"cannot tell the version of {name}, which calls itself {text!r}: reinstall {_DISTRIBUTIONS[name]!r}",
            name=name,
        ) from error

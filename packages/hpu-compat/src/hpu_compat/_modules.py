"""Import finder for the modules of `lightning_habana` that only re-export names; other modules of it are files."""

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Final, Literal

from hpu_compat import _lazy, _targets

_ROOT: Final = "lightning_habana"

_has_deepspeed: Final = functools.partial(_lazy.is_installed, "deepspeed")


def _media_loader() -> object:
    return _lazy.load("hpu_compat._datamodule:MediaApiDataLoader", "MediaApiDataLoader")


# Names that programs import and that are not the Trainer's or Fabric's, computed on first use.
_COMPUTED: Final[Mapping[str, Mapping[str, Callable[[], object]]]] = {
    "fabric.plugins.precision": {"_PRECISION_INPUT": lambda: Literal["32", "bf16", "32-true", "bf16-mixed"]},
    "pytorch.datamodule.dataloaders.resnet_media_pipe": {"MediaApiDataLoader": _media_loader},
    # The archived module imported it from the vendor's package.
    "pytorch.datamodule.datamodule": {"HabanaDataLoader": _media_loader},
    "pytorch.plugins.deepspeed_precision": {"_HPU_DEEPSPEED_AVAILABLE": _has_deepspeed},
    "pytorch.plugins.precision": {
        "_PRECISION_INPUT": lambda: Literal["32", "32-true", "bf16", "bf16-mixed", "fp8", "16-mixed"]
    },
    "pytorch.strategies.deepspeed": {"_HPU_DEEPSPEED_AVAILABLE": _has_deepspeed},
}


class _ReexportFinder:
    """Meta path finder and loader of the modules in `_targets.MODULES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that only re-exports names, None for any other module."""
        del target
        root, _, name = fullname.partition(".")
        if root != _ROOT or name not in _targets.MODULES or path is None:
            return None
        folder = Path(next(iter(path)), fullname.rpartition(".")[2])
        is_package = folder.is_dir() or any(other.startswith(f"{name}.") for other in _targets.MODULES)
        spec = ModuleSpec(fullname, self, is_package=is_package)  # type: ignore[arg-type] # Python needs no base class.
        if is_package:
            # The folder holds the modules that are files.
            spec.submodule_search_locations = [str(folder)]
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the creation of the module to Python."""

    def exec_module(self, module: ModuleType) -> None:
        """Give a new module its names."""
        name = module.__name__.removeprefix(f"{_ROOT}.")
        names = _targets.MODULES[name]
        targets = _targets.FABRIC if name.partition(".")[0] == "fabric" else _targets.TRAINER
        get, list_names = _lazy.lazy_getattr(
            module.__name__, names, targets=targets, computed=_COMPUTED.get(name), submodules=submodules(name)
        )
        vars(module).update(__all__=sorted(names), __getattr__=get, __dir__=list_names)
        module.__doc__ = f"Re-exports of {', '.join(names)}." if names else "Package of the archived package's modules."


def submodules(package: str = "") -> list[str]:
    """Return the last parts of the names of the modules right below a module, as far as they only re-export names."""
    parents = (name.rpartition(".") for name in _targets.MODULES)
    return [name for parent, _, name in parents if parent == package]


def install() -> None:
    """Put the finder in front of those for files, unless it is there already."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


_finder: Final = _ReexportFinder()

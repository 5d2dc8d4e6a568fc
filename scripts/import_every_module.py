"""Import every module of an installed package, and check what that loads: the proof that a wheel stands alone.

Usage: `python -I scripts/import_every_module.py <package> [--complete]`; `nox -s isolation` calls it. A module whose
extra is not installed must say so in one sentence that holds the pip command, and so must a name that a module exports
and fetches when it is used; with `--complete` all must be there.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Modules of a machine with cards, which no import of ours may load.
VENDOR = {"habana_frameworks", "pyhlml"}
# Frameworks, which importing the package itself (not each of its modules) may not load.
FRAMEWORKS = {"deepspeed", "lightning", "lightning_fabric", "pytorch_lightning"}


def loaded(names: set[str]) -> set[str]:
    """Give those of the top-level modules that this process has loaded."""
    return names & {name.partition(".")[0] for name in sys.modules}


def import_all(name: str, *, complete: bool) -> list[str]:
    """Import a module, and each name that it exports.

    Args:
        name: The module.
        complete: Whether everything that the package can use is installed.

    Returns:
        What is wrong with it.
    """
    faults = [attempt(name, lambda: importlib.import_module(name), complete=complete)]
    module = sys.modules.get(name)
    faults += [
        attempt(f"{name}.{exported}", functools.partial(getattr, module, exported), complete=complete)
        for exported in getattr(module, "__all__", ())
    ]
    return [fault for fault in faults if fault is not None]


def attempt(name: str, get: Callable[[], object], *, complete: bool) -> str | None:
    """Get something.

    Args:
        name: What it is called.
        get: Gets it.
        complete: Whether everything that the package can use is installed.

    Returns:
        What is wrong with it, or None.
    """
    try:
        get()
    except ModuleNotFoundError as error:
        if complete:
            return f"{name}: {error}"
        if "pip install" not in str(error):
            return f"{name}: an absent extra must be answered by a sentence with the pip command, got: {error}"
        print(f"  {name}: needs an extra and says so")
    except Exception as error:  # noqa: BLE001 - any failure of any module is what is looked for.
        return f"{name}: {type(error).__name__}: {error}"
    return None


def main() -> int:
    """Import the package, then each of its modules.

    Returns:
        0, or 1 when something did not import or loaded what it must not.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="an installed import package, such as hpu_core")
    parser.add_argument("--complete", action="store_true", help="all extras are installed: every module must import")
    options = parser.parse_args()

    package = importlib.import_module(options.package)
    print(f"{options.package} from {package.__path__[0]}")
    faults = [f"importing {options.package} loaded {name}" for name in sorted(loaded(VENDOR | FRAMEWORKS))]
    modules = [module.name for module in pkgutil.walk_packages(package.__path__, f"{options.package}.")]
    for name in [options.package, *modules]:
        faults += import_all(name, complete=options.complete)
    faults += [f"importing the modules loaded {name}" for name in sorted(loaded(VENDOR))]
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{len(modules)} modules, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())

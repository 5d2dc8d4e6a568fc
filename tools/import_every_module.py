"""Import every module of an installed package, and check what that loads.

A module whose extra is not installed must raise an error with the pip command, and so must an exported name that is
fetched when it is used. With `--complete` all extras are installed, and everything must import.

Usage: `python -I tools/import_every_module.py PACKAGE [--complete]`; `nox -s isolation` calls it.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import pkgutil
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Modules of a machine with cards; no import may load them.
VENDOR_MODULES = {"habana_frameworks", "pyhlml"}
# Importing the package itself, not each of its modules, may not load a framework.
FRAMEWORKS = {"deepspeed", "lightning", "lightning_fabric", "pytorch_lightning"}


def loaded(names: set[str]) -> list[str]:
    """Return which of some top-level modules this process has loaded."""
    return sorted(names & {name.partition(".")[0] for name in sys.modules})


def find_errors(name: str, get: Callable[[], object], *, complete: bool) -> Iterator[str]:
    """Import a module or fetch a name, and yield the error, unless an extra is missing and the error says which."""
    try:
        get()
    except ModuleNotFoundError as error:
        # A package may need another one of this repository that it does not require.
        if complete and not str(error.name).startswith("hpu_"):
            yield f"{name}: {error}"
        elif "pip install" not in str(error):
            yield f"{name}: the error for a missing extra must have the pip command, got: {error}"
        else:
            print(f"  {name}: needs an extra and says so")
    except Exception as error:  # noqa: BLE001 - any error of any module counts.
        yield f"{name}: {type(error).__name__}: {error}"


def main() -> int:
    """Import the package, then each of its modules; return 1 if one failed or loaded what it must not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", help="an installed import package, such as hpu_core")
    parser.add_argument("--complete", action="store_true", help="all extras are installed: every module must import")
    options = parser.parse_args()

    package = importlib.import_module(options.package)
    print(f"{options.package} from {package.__path__[0]}")
    errors = [f"importing {options.package} loaded {name}" for name in loaded(VENDOR_MODULES | FRAMEWORKS)]
    modules = [module.name for module in pkgutil.walk_packages(package.__path__, f"{options.package}.")]
    for name in [options.package, *modules]:
        errors += find_errors(name, functools.partial(importlib.import_module, name), complete=options.complete)
        module = sys.modules.get(name)
        for exported in getattr(module, "__all__", ()):
            get = functools.partial(getattr, module, exported)
            errors += find_errors(f"{name}.{exported}", get, complete=options.complete)
    errors += [f"importing the modules loaded {name}" for name in loaded(VENDOR_MODULES)]
    for error in errors:
        print(f"ERROR {error}")
    print(f"{len(modules)} modules, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())

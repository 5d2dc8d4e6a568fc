"""Compilation of the C++ extension: ``python -m hpu_sim.device._compile_extension FOLDER SOURCES``.

:mod:`hpu_sim.device.build` runs it in a subprocess.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

EXTENSION_NAME: Final = "hpu_sim_native"

COMPILER_FLAGS: Final = ("-O2",)


def compile_device(folder: Path, sources: Path) -> None:
    """Compile the C++ files of ``sources`` to ``hpu_sim_native.so`` in ``folder``."""
    restore_pkg_resources()

    import ninja
    from torch.utils import cpp_extension

    # The environment's own ninja is not on PATH unless the environment is activated.
    os.environ["PATH"] = os.pathsep.join((ninja.BIN_DIR, os.environ.get("PATH", "")))

    # One translation unit, because parsing torch's headers takes most of the time.
    source = folder / "device.cpp"
    source.write_text("".join(f'#include "{path.name}"\n' for path in sorted(sources.glob("*.cpp"))), encoding="utf-8")
    cpp_extension.load(
        EXTENSION_NAME,
        [str(source)],
        extra_include_paths=[str(sources)],
        extra_cflags=list(COMPILER_FLAGS),
        build_directory=str(folder),
    )


def restore_pkg_resources() -> None:
    """Restore ``pkg_resources.packaging``, which torch < 2.1 imports and setuptools >= 82 lacks."""
    if importlib.util.find_spec("pkg_resources") is None:
        import packaging.version

        module = ModuleType("pkg_resources")
        module.__dict__["packaging"] = packaging
        sys.modules[module.__name__] = module


if __name__ == "__main__":
    compile_device(Path(sys.argv[1]), Path(sys.argv[2]))

"""Compilation of the C++ extension: ``python -m hpu_sim._compile_extension FOLDER SOURCES``.

:mod:`hpu_sim.build` runs it in a subprocess.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

EXTENSION_NAME: Final = "hpu_sim_native"

#: USE_C10D_GLOO opens torch's header of the gloo backend, which carries the simulated collectives.
COMPILER_FLAGS: Final = ("-O2", "-DUSE_C10D_GLOO")


def compile_device(folder: Path, sources: Path) -> None:
    """Build ``hpu_sim_native.so`` in ``folder`` from the C++ files of ``sources``."""
    offer_pkg_resources()

    import ninja
    from torch.utils import cpp_extension

    # The ninja of this environment serves also when the environment is not activated, so not on PATH.
    os.environ["PATH"] = os.pathsep.join((ninja.BIN_DIR, os.environ.get("PATH", "")))

    # One translation unit: each file alone would spend most of its time reading torch's headers again.
    unity = folder / "device.cpp"
    unity.write_text("".join(f'#include "{path.name}"\n' for path in sorted(sources.glob("*.cpp"))), encoding="utf-8")
    cpp_extension.load(
        EXTENSION_NAME,
        [str(unity)],
        extra_include_paths=[str(sources)],
        extra_cflags=list(COMPILER_FLAGS),
        build_directory=str(folder),
    )


def offer_pkg_resources() -> None:
    """Let torch before 2.1 import ``packaging`` from ``pkg_resources``, which setuptools from 82 on no longer has."""
    if importlib.util.find_spec("pkg_resources") is None:
        import packaging.version

        module = ModuleType("pkg_resources")
        module.__dict__["packaging"] = packaging
        sys.modules[module.__name__] = module


if __name__ == "__main__":
    compile_device(Path(sys.argv[1]), Path(sys.argv[2]))

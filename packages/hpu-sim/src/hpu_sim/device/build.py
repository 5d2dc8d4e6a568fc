"""Build of the C++ extension: compiled on first use for the installed torch, then loaded from a cache.

A cache entry belongs to one build of torch, one Python, one state of the sources and one C library, so entries never
become invalid. A home folder may serve machines that differ in the last one.
An entry is built in a temporary folder and renamed into place once it is complete. A file lock lets one of several
processes build while the others wait; the kernel releases it when its holder exits.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Final

import platformdirs

from hpu_sim.device._compile_extension import COMPILER_FLAGS, EXTENSION_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

CACHE_VARIABLE: Final = "HPU_SIM_CACHE"

#: The newest minor release of torch with which the device is tested; that of ``[simulator]`` in compat.toml.
MAX_TORCH_VERSION: Final = (2, 15)

_LIBRARY: Final = f"{EXTENSION_NAME}.so"
_METADATA_FILE: Final = "metadata.json"
_LOG_LINES: Final = 40
_ROOT: Final = 0
_DEFAULT_COMPILER: Final = "c++"


class BuildError(RuntimeError):
    """Error of compiling or caching the C++ extension."""


def source_folder() -> Path:
    """Return the folder of the C++ sources."""
    return Path(str(resources.files("hpu_sim").joinpath("csrc")))


def cache_folder() -> Path:
    """Return the folder of the cache: ``HPU_SIM_CACHE``, or one in the user's cache folder."""
    override = os.environ.get(CACHE_VARIABLE)
    return Path(override) if override else platformdirs.user_cache_path("hpu-sim")


def torch_folder() -> Path:
    """Return the folder of the installed torch, without importing it, which takes longer than to look at a cache entry.

    Raises:
        BuildError: If there is no torch.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError("hpu-sim needs torch and found none in this environment; install torch")
    return Path(spec.origin).parent


def build_key() -> str:
    """Return the name of the cache entry for this torch, this Python, these sources and this C library."""
    torch = torch_folder()
    digest = hashlib.sha256()
    for part in (
        # The version and the commit.
        (torch / "version.py").read_text(encoding="utf-8"),
        # Builds of one version with another C++ ABI have another size.
        str((torch / "lib" / "libtorch_cpu.so").stat().st_size),
        sysconfig.get_config_var("SOABI") or "",
        "-".join(platform.libc_ver()),
        *COMPILER_FLAGS,
    ):
        digest.update(part.encode() + b"\0")
    for path in sorted(source_folder().iterdir()):
        if path.suffix in {".cpp", ".h"}:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return f"torch-{importlib.metadata.version('torch')}-{sys.implementation.cache_tag}-{digest.hexdigest()[:16]}"


def load_extension() -> ModuleType:
    """Return the C++ extension; build it first if the cache has no complete entry.

    Raises:
        BuildError: As `ensure_built`, or the extension does not load.

    Warns:
        UserWarning: If torch is newer than the newest that the device is tested with.
    """
    _check_torch_version()
    return _import_library(ensure_built() / _LIBRARY)


def ensure_built() -> Path:
    """Return the cache entry with the C++ extension; build it first if it is not complete.

    Raises:
        BuildError: If there is no torch or C++ compiler, the compiler fails, or the cache folder is not writable.
    """
    entry = cache_folder() / build_key()
    if not _is_complete(entry):
        with _locked(entry):
            # Another process may have built it during the wait for the lock.
            if not _is_complete(entry):
                _build(entry)
    return entry


def _check_torch_version() -> None:
    import torch

    major, minor = torch.__version__.split(".")[:2]
    if (int(major), int(minor)) > MAX_TORCH_VERSION:
        latest = ".".join(map(str, MAX_TORCH_VERSION))
        warnings.warn(
            f"torch {torch.__version__} is newer than {latest}, the newest with which the simulated device is tested; "
            f"install torch {latest} if operators fail",
            stacklevel=2,
        )


def _is_complete(entry: Path) -> bool:
    # Loading a truncated library can crash the process, so its checksum is verified first.
    try:
        if not all(_is_own(path) for path in (entry, entry / _LIBRARY)):
            return False
        metadata = json.loads((entry / _METADATA_FILE).read_text(encoding="utf-8"))
        return bool(metadata["sha256"] == _digest(entry / _LIBRARY))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _is_own(path: Path) -> bool:
    """Return whether only this user or root can change a path; HPU_SIM_CACHE may be in a folder for all, as /tmp."""
    # A symbolic link has the mode 0777.
    status = path.lstat()
    return status.st_uid in {_ROOT, os.geteuid()} and not status.st_mode & stat.S_IWOTH


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _import_library(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(EXTENSION_NAME, str(path))
    spec = importlib.util.spec_from_loader(EXTENSION_NAME, loader)
    if spec is None:  # For the type checker: a loader with a name has a spec.
        raise BuildError(f"cannot load {path}")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise BuildError(
            f"the simulated device in {path.parent} must load, got {error}; remove that folder to build it again, "
            f"or set {CACHE_VARIABLE} to another one"
        ) from error
    return module


@contextlib.contextmanager
def _locked(entry: Path) -> Iterator[None]:
    # Most processes build nothing, and the import takes a tenth of their start.
    import filelock

    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(entry.parent / f"{entry.name}.lock")
        lock.acquire()
    except OSError as error:
        raise _cache_error(error) from error
    try:
        yield
    finally:
        lock.release()


def _cache_error(error: OSError) -> BuildError:
    return BuildError(
        f"the cache folder {cache_folder()} must be writable, got an error ({error.strerror or error}); "
        f"set {CACHE_VARIABLE} to another folder"
    )


def _build(entry: Path) -> None:
    _check_compiler()
    sys.stderr.write(f"hpu-sim: compiling the simulated device for {entry.name}, once, in about half a minute\n")
    try:
        # Left by a process that was killed. The lock excludes running builds.
        for stale in entry.parent.glob(f"{entry.name}.build-*"):
            shutil.rmtree(stale, ignore_errors=True)
        workspace = Path(tempfile.mkdtemp(prefix=f"{entry.name}.build-", dir=entry.parent))
        try:
            _compile(workspace)
            _install(workspace / _LIBRARY, entry)
        finally:
            shutil.rmtree(workspace, ignore_errors=True)
    except OSError as error:
        raise _cache_error(error) from error


def _check_compiler() -> None:
    compiler = os.environ.get("CXX", _DEFAULT_COMPILER)
    if shutil.which(compiler) is None:
        raise BuildError(
            f"hpu-sim needs a C++ compiler and found no {compiler!r} on PATH; "
            "install one (Debian and Ubuntu: apt-get install g++) or set CXX"
        )


def _compile(workspace: Path) -> None:
    # In a subprocess: torch's build helpers print and change process-wide state. Without HPU_SIM_DEVICES in it, because
    # loading the device there would wait for the lock of this very build.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONWARNINGS": "ignore"}
    environment.pop("HPU_SIM_DEVICES", None)
    command = [sys.executable, "-m", "hpu_sim.device._compile_extension", str(workspace), str(source_folder())]
    result = subprocess.run(  # noqa: S603 - own module, own interpreter
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if result.returncode != 0 or not (workspace / _LIBRARY).is_file():
        tail = "\n".join(result.stdout.splitlines()[-_LOG_LINES:])
        raise BuildError(
            f"the simulated device could not be built (exit code {result.returncode}); "
            f"last lines of the compiler:\n{tail}"
        )


def _install(library: Path, entry: Path) -> None:
    shutil.rmtree(entry, ignore_errors=True)
    staged = library.parent / "entry"
    staged.mkdir()
    library.rename(staged / _LIBRARY)
    # Whatever the umask is: see `_is_own`.
    staged.chmod(0o755)
    (staged / _LIBRARY).chmod(0o755)
    (staged / _METADATA_FILE).write_text(json.dumps({"sha256": _digest(staged / _LIBRARY)}), encoding="utf-8")
    staged.rename(entry)

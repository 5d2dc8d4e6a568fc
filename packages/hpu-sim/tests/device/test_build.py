"""Build and cache of the C++ extension."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
from typing import TYPE_CHECKING, Final
from unittest import mock

import platformdirs
import pytest

from hpu_sim.device import build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SMALL_EXTENSION: Final = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hpu_sim_native"};
PyMODINIT_FUNC PyInit_hpu_sim_native() { return PyModuleDef_Init(&definition); }
"""
_LOAD: Final = "import sys; from hpu_sim.device import build; print(build.load_extension().__name__)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HPU_SIM_CACHE", str(folder))
    return folder


@pytest.fixture(scope="module")
def small_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an extension module that compiles fast and, unlike the device, can be loaded several times."""
    library = tmp_path_factory.mktemp("small") / "hpu_sim_native.so"
    source = library.with_suffix(".cpp")
    source.write_text(_SMALL_EXTENSION, encoding="utf-8")
    include = f"-I{sysconfig.get_paths()['include']}"
    subprocess.run([os.environ.get("CXX", "c++"), "-shared", "-fPIC", include, source, "-o", library], check=True)
    return library


@pytest.fixture
def builds(cache: Path, small_library: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the workspaces of the builds so far. The compiler's subprocess, which takes half a minute, is replaced."""
    workspaces = []

    def compile_quickly(workspace: Path) -> None:
        workspaces.append(workspace)
        shutil.copy(small_library, workspace)

    monkeypatch.setattr(build, "_compile", compile_quickly)
    return workspaces


def _library(cache: Path) -> Path:
    return cache / build.build_key() / "hpu_sim_native.so"


def test_the_first_use_builds(builds: list[Path], cache: Path) -> None:
    """The cache holds the new entry, and nothing else but its lock."""
    assert build.load_extension().__file__ == str(_library(cache))
    assert len(builds) == 1
    key = build.build_key()
    assert sorted(path.name for path in cache.iterdir()) in ([key], [key, f"{key}.lock"])


def _truncate(entry: Path) -> None:
    # Not overwritten, because this process has mapped the file.
    library = entry / "hpu_sim_native.so"
    library.unlink()
    library.write_bytes(b"\x7fELF")


# What happens to an entry.
_DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    "no library": lambda entry: (entry / "hpu_sim_native.so").unlink(),
    "a truncated library": _truncate,
    "empty metadata": lambda entry: (entry / "metadata.json").write_text("", encoding="utf-8"),
    "metadata of another kind": lambda entry: (entry / "metadata.json").write_text("[]", encoding="utf-8"),
    "no checksum": lambda entry: (entry / "metadata.json").write_text("{}", encoding="utf-8"),
    "another checksum": lambda entry: (entry / "metadata.json").write_text('{"sha256": 1}', encoding="utf-8"),
    "a folder that others can write": lambda entry: entry.chmod(0o777),
    "a library that others can write": lambda entry: (entry / "hpu_sim_native.so").chmod(0o777),
}


@pytest.mark.parametrize("damage", _DAMAGES)
def test_an_entry_that_cannot_be_trusted_is_built_again(damage: str, builds: list[Path], cache: Path) -> None:
    """Loading it could crash the process; in a folder for all, another user could have put it there."""
    build.load_extension()
    _DAMAGES[damage](_library(cache).parent)

    assert build.load_extension().__name__ == "hpu_sim_native"
    assert len(builds) == 2


def test_an_entry_of_another_user_means_a_new_build(builds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    monkeypatch.setattr(build, "_ROOT", 4712)
    build.load_extension()
    build.load_extension()

    assert len(builds) == 2


def test_the_library_is_the_users_own_whatever_the_umask(builds: list[Path], cache: Path) -> None:
    before = os.umask(0)
    try:
        build.load_extension()
    finally:
        os.umask(before)

    assert [path.stat().st_mode & 0o022 for path in (_library(cache), _library(cache).parent)] == [0, 0]


def test_a_build_removes_the_workspaces_of_killed_builds(builds: list[Path], cache: Path) -> None:
    stale = cache / f"{build.build_key()}.build-abc"
    stale.mkdir(parents=True)
    (stale / "device.o").touch()

    build.load_extension()

    assert not stale.exists()


def test_a_build_is_announced_on_stderr(builds: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Half a minute of silence would look like a hang."""
    build.load_extension()

    expected = f"hpu-sim: compiling the simulated device for {build.build_key()}, once, in about half a minute\n"
    assert capsys.readouterr() == ("", expected)


def test_the_key_names_torch_and_python() -> None:
    """A person can tell the entries of the cache apart."""
    version = importlib.metadata.version("torch")
    assert build.build_key().startswith(f"torch-{version}-{sys.implementation.cache_tag}-")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with one C++ file in place of the sources."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "a.cpp").write_text("int a;\n", encoding="utf-8")
    monkeypatch.setattr(build, "source_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({}, {"a.cpp": "int b;"}, True),
        ({}, {"b.cpp": ""}, True),
        ({}, {"a.h": ""}, True),
        # Names and contents are hashed apart.
        ({"b.cpp": "c.cpp"}, {"b.cpp": "", "c.cpp": ""}, True),
        # An editor's backup file causes no build.
        ({}, {"a.cpp~": ""}, False),
    ],
)
def test_a_change_of_the_sources_changes_the_key(
    before: dict[str, str], after: dict[str, str], changes: bool, sources: Path
) -> None:
    keys = []
    for files in (before, after):
        for name, content in files.items():
            (sources / name).write_text(content, encoding="utf-8")
        keys.append(build.build_key())

    assert (keys[0] != keys[1]) is changes


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("platform.libc_ver", lambda: ("glibc", "2.17")),
        ("hpu_sim.device.build.COMPILER_FLAGS", ("-O0",)),
    ],
)
def test_the_key_depends_on_what_the_library_does(target: str, value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library and the flags of the compiler."""
    before = build.build_key()
    monkeypatch.setattr(target, value)

    assert build.build_key() != before


@pytest.mark.parametrize("file", ["version.py", "lib/libtorch_cpu.so"])
def test_the_key_depends_on_the_build_of_torch(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version and commit, and the size of its library, which another C++ ABI changes."""
    (tmp_path / "lib").mkdir()
    for name in ("version.py", "lib/libtorch_cpu.so"):
        (tmp_path / name).write_text("1", encoding="utf-8")
    monkeypatch.setattr(build, "torch_folder", lambda: tmp_path)
    before = build.build_key()
    (tmp_path / file).write_text("22", encoding="utf-8")

    assert build.build_key() != before


def test_the_key_needs_no_import_of_torch() -> None:
    """`hpu-sim run` starts the program, which imports torch."""
    code = "import sys; from hpu_sim.device import build; build.build_key(); print('torch' in sys.modules)"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}

    assert subprocess.check_output([sys.executable, "-c", code], text=True, env=environment) == "False\n"


def test_a_missing_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(build.BuildError, match="needs torch and found none"):
        build.build_key()


@pytest.mark.usefixtures("cache")
def test_a_library_that_does_not_load_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that needs a newer C library."""
    monkeypatch.setattr(build, "_compile", lambda workspace: (workspace / "hpu_sim_native.so").write_bytes(b"x"))

    with pytest.raises(build.BuildError, match=r"must load, got .*; remove that folder to build it again"):
        build.load_extension()


def test_the_default_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HPU_SIM_CACHE it is in the user's cache folder of the platform."""
    monkeypatch.delenv("HPU_SIM_CACHE", raising=False)

    assert build.cache_folder() == platformdirs.user_cache_path("hpu-sim")


@pytest.mark.parametrize("folder", ["file", "file/folder", "/proc/hpu-sim"], ids=["file", "below a file", "read-only"])
def test_an_unusable_cache_folder_is_named(folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the variable that sets another. Not even root can create files in /proc."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("HPU_SIM_CACHE", str(tmp_path / folder))

    text = f"the cache folder {tmp_path / folder} must be writable, got an error ("
    with pytest.raises(build.BuildError, match=rf"{re.escape(text)}.*; set HPU_SIM_CACHE to another folder$"):
        build.load_extension()


def test_loading_from_the_cache_writes_nothing(builds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A container image may hold the entry in a read-only folder."""
    build.load_extension()

    def refuse(entry: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(build, "_locked", refuse)

    build.load_extension()

    assert len(builds) == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (build.BuildError("no"), "^no$"),
        (OSError(28, "No space left on device"), r"must be writable, got an error \(No space left on device\)"),
    ],
)
def test_a_failed_build_leaves_no_entry(
    error: Exception, message: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_compile", mock.Mock(side_effect=error))

    with pytest.raises(build.BuildError, match=message):
        build.load_extension()

    assert not any(path.is_dir() for path in cache.iterdir())


def test_a_missing_compiler_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how to install one."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(cache))

    with pytest.raises(build.BuildError, match=r"found no 'c\+\+' on PATH; install one .* or set CXX"):
        build.load_extension()


@pytest.mark.usefixtures("forks")
def test_a_failing_compiler_is_quoted(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error ends with the compiler's last lines."""
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'cannot do that' >&2\nexit 3\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))

    with pytest.raises(
        build.BuildError, match=r"could not be built \(exit code 1\); last lines of the compiler:"
    ) as caught:
        build.load_extension()

    assert str(compiler) in str(caught.value)
    assert "returned non-zero exit status 3" in str(caught.value)


def _kill_while_compiling(folder: Path, cache: Path, start_python: Callable[..., subprocess.Popen[str]]) -> None:
    # A compiler that reports its start and never exits.
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    started = os.open(pipe, os.O_RDWR)
    compiler = folder / "compiler"
    compiler.write_text(f"#!/bin/sh\necho >{pipe}\nexec tail -f /dev/null\n", encoding="utf-8")
    compiler.chmod(0o755)
    # A process group of its own, to kill the compiler as well.
    program = f"import os; os.setpgid(0, 0); {_LOAD}"
    process = start_python("-c", program, HPU_SIM_CACHE=str(cache), CXX=str(compiler))
    try:
        assert select.select([started], [], [], 120)[0]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        os.close(started)


@pytest.mark.slow
def test_processes_that_start_together_after_a_killed_build_build_once(
    tmp_path: Path, start_python: Callable[..., subprocess.Popen[str]]
) -> None:
    """One builds, the other waits. The kill leaves nothing to load, and the build removes what it left."""
    cache, key = tmp_path / "cache", build.build_key()
    _kill_while_compiling(tmp_path, cache, start_python)
    after_kill = [path.name for path in cache.iterdir()]
    assert key not in after_kill
    assert any(name.startswith(f"{key}.build-") for name in after_kill)

    processes = [start_python("-c", _LOAD, HPU_SIM_CACHE=str(cache)) for _ in range(2)]
    outputs = [process.communicate(timeout=240) for process in processes]

    message = f"hpu-sim: compiling the simulated device for {key}, once, in about half a minute\n"
    assert sorted(outputs) == [("hpu_sim_native\n", ""), ("hpu_sim_native\n", message)]
    assert sorted(path.name for path in cache.iterdir()) in ([key], [key, f"{key}.lock"])
    metadata = json.loads((cache / key / "metadata.json").read_text(encoding="utf-8"))
    assert list(metadata) == ["sha256"]
    assert re.fullmatch("[0-9a-f]{64}", metadata["sha256"])


@pytest.mark.usefixtures("builds")
def test_a_torch_newer_than_tested_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    major, minor = build.MAX_TORCH_VERSION
    monkeypatch.setattr("torch.__version__", f"{major}.{minor + 1}.0+cpu")

    with pytest.warns(UserWarning, match=rf"is newer than {major}\.{minor}, the newest with which"):
        build.load_extension()

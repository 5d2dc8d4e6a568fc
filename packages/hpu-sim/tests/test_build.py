"""The cache of compiled devices."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import platformdirs
import pytest
import torch

from hpu_sim import build

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

_LOAD: Final = "import sys; from hpu_sim import build; print(build.load_extension().__name__)"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HPU_SIM_CACHE", str(folder))
    return folder


@pytest.fixture
def builds(cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were compiled in, by a compiler that takes no time; the path of what it makes is the device."""
    folders = []

    def compile_quickly(workspace: Path) -> None:
        folders.append(workspace)
        (workspace / "hpu_sim_native.so").write_bytes(b"library")

    monkeypatch.setattr(build, "_compile", compile_quickly)
    # A process cannot load the device twice.
    monkeypatch.setattr(build, "_import_library", lambda path: SimpleNamespace(path=path))
    return folders


def _library(cache: Path) -> Path:
    return cache / build.build_key() / "hpu_sim_native.so"


def test_the_first_use_builds(builds: list[Path], cache: Path) -> None:
    """The entry of this torch, Python and source is made, and nothing is left beside it but the lock."""
    assert build.load_extension().path == _library(cache)
    assert len(builds) == 1
    key = build.build_key()
    assert sorted(path.name for path in cache.iterdir()) in ([key], [key, f"{key}.lock"])


def test_the_second_use_finds_the_first(builds: list[Path]) -> None:
    """One build serves for good."""
    build.load_extension()
    build.load_extension()

    assert len(builds) == 1


@pytest.mark.parametrize("content", [b"", b"libraries", b"l"], ids=["empty", "longer", "shorter"])
def test_a_corrupt_library_is_built_again(content: bytes, builds: list[Path], cache: Path) -> None:
    """It is never handed to the loader, which it could kill."""
    build.load_extension()
    _library(cache).write_bytes(content)

    build.load_extension()

    assert len(builds) == 2
    assert _library(cache).read_bytes() == b"library"


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", '{"sha256": 1}'])
def test_a_corrupt_manifest_means_a_new_build(content: str, builds: list[Path], cache: Path) -> None:
    """A library that nothing vouches for is not loaded."""
    build.load_extension()
    (_library(cache).parent / "manifest.json").write_text(content, encoding="utf-8")

    build.load_extension()

    assert len(builds) == 2


def test_a_missing_library_means_a_new_build(builds: list[Path], cache: Path) -> None:
    """Somebody who cleans up half of the cache does no harm."""
    build.load_extension()
    _library(cache).unlink()

    build.load_extension()

    assert len(builds) == 2


def test_what_a_dead_build_left_is_removed(builds: list[Path], cache: Path) -> None:
    """The next build cleans up after it."""
    stale = cache / f"{build.build_key()}.build-abc"
    stale.mkdir(parents=True)
    (stale / "device.o").touch()

    build.load_extension()

    assert not stale.exists()


def test_a_failed_build_leaves_no_entry(cache: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be taken for a device."""

    def fail(workspace: Path) -> None:
        raise build.BuildError("no")

    monkeypatch.setattr(build, "_compile", fail)

    with pytest.raises(build.BuildError):
        build.load_extension()

    assert not any(path.is_dir() for path in cache.iterdir())


def test_building_is_told_on_standard_error(builds: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Half a minute of silence would look like a fault."""
    build.load_extension()

    expected = f"hpu-sim: building the simulated device once for {build.build_key()}, about half a minute\n"
    assert capsys.readouterr() == ("", expected)


def test_the_key_names_torch_and_python() -> None:
    """A person who looks into the cache sees what each entry is for."""
    assert build.build_key().startswith(f"torch-{torch.__version__}-{sys.implementation.cache_tag}-")


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one C++ file, as the sources of the device."""
    folder = tmp_path / "csrc"
    folder.mkdir()
    (folder / "a.cpp").write_text("int a;\n", encoding="utf-8")
    monkeypatch.setattr(build, "source_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(("name", "content"), [("a.cpp", "int b;\n"), ("b.cpp", ""), ("a.h", "")])
def test_every_change_of_the_sources_makes_another_key(name: str, content: str, sources: Path) -> None:
    """Nobody has to clear the cache."""
    before = build.build_key()
    (sources / name).write_text(content, encoding="utf-8")

    assert build.build_key() != before


def test_a_moved_boundary_between_files_makes_another_key(sources: Path) -> None:
    """Names and contents do not run into each other."""
    (sources / "b.cpp").write_text("c.cpp", encoding="utf-8")
    before = build.build_key()
    (sources / "b.cpp").write_text("", encoding="utf-8")
    (sources / "c.cpp").write_text("", encoding="utf-8")

    assert build.build_key() != before


def test_other_files_do_not_matter(sources: Path) -> None:
    """An editor's backup costs no build."""
    before = build.build_key()
    (sources / "a.cpp~").touch()

    assert build.build_key() == before


@pytest.mark.parametrize(
    ("target", "value"),
    [("torch.__version__", "2.0.0"), ("torch.version.git_version", "0"), ("hpu_sim.build.COMPILER_FLAGS", ("-O0",))],
)
def test_the_key_depends_on_what_was_compiled_against(
    target: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another torch, or other flags, are another device."""
    before = build.build_key()
    monkeypatch.setattr(target, value)

    assert build.build_key() != before


def test_the_cache_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without HPU_SIM_CACHE it lies where the system keeps such things."""
    monkeypatch.delenv("HPU_SIM_CACHE", raising=False)

    assert build.cache_folder() == platformdirs.user_cache_path("hpu-sim")


@pytest.mark.parametrize("below", ["", "folder"], ids=["a file", "below a file"])
def test_a_cache_that_cannot_be_written_is_named(below: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which folder it is and which variable names another."""
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / below
    monkeypatch.setenv("HPU_SIM_CACHE", str(folder))

    with pytest.raises(build.BuildError, match=re.escape(f"simulated devices {folder} cannot be written (")) as caught:
        build.load_extension()

    assert str(caught.value).endswith("; set HPU_SIM_CACHE to a folder that can")


def test_what_is_there_needs_no_writing(builds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that was built into an image is loaded from a folder that nobody may write."""
    build.load_extension()

    def refuse(entry: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(build, "_locked", refuse)

    build.load_extension()

    assert len(builds) == 1


def test_a_read_only_cache_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that takes no files, which not even an administrator can change."""
    monkeypatch.setenv("HPU_SIM_CACHE", "/proc/hpu-sim")

    with pytest.raises(build.BuildError, match=r"simulated devices /proc/hpu-sim cannot be written \("):
        build.load_extension()


def test_a_full_disk_is_named(cache: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that can be made may still not take a library."""

    def fail(workspace: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(build, "_compile", fail)

    with pytest.raises(build.BuildError, match=r"cannot be written \(No space left on device\)"):
        build.load_extension()


def test_a_missing_compiler_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what is needed and how to get it."""
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(cache))

    with pytest.raises(build.BuildError, match=r"found no 'c\+\+' on PATH; install one .* or name it in CXX"):
        build.load_extension()


def test_a_build_error_is_a_runtime_error() -> None:
    """Who activates the device need not know of the compiler."""
    assert issubclass(build.BuildError, RuntimeError)


def test_a_failing_compiler_is_quoted(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last lines are in the error."""
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\necho 'cannot do that' >&2\nexit 3\n", encoding="utf-8")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))

    with pytest.raises(
        build.BuildError, match=r"could not be built \(exit code 1\)\. The compiler's last lines:"
    ) as caught:
        build.load_extension()

    assert str(compiler) in str(caught.value)
    assert "returned non-zero exit status 3" in str(caught.value)


@dataclass(frozen=True)
class _Rebuild:
    """What happened to a cache in which a build was killed and then two processes wanted the device.

    Attributes:
        after_kill: Names in the cache after the kill.
        results: Exit code, output and errors of the two processes.
        in_the_end: Names in the cache after both.
        manifest: The entry's manifest.
    """

    after_kill: list[str]
    results: list[tuple[int, str, str]]
    in_the_end: list[str]
    manifest: dict[str, str]


@pytest.fixture(scope="module")
def rebuild(tmp_path_factory: pytest.TempPathFactory, start_python: Callable[..., subprocess.Popen[str]]) -> _Rebuild:
    """The only real compilation of the suite."""
    folder = tmp_path_factory.mktemp("rebuild")
    cache = folder / "cache"
    _kill_while_compiling(folder, cache, start_python)
    after_kill = sorted(path.name for path in cache.iterdir())
    processes = [start_python("-c", _LOAD, HPU_SIM_CACHE=str(cache)) for _ in range(2)]
    results = []
    for process in processes:
        output, error = process.communicate(timeout=240)
        results.append((process.returncode, output, error))
    return _Rebuild(
        after_kill=after_kill,
        results=results,
        in_the_end=sorted(path.name for path in cache.iterdir()),
        manifest=json.loads((cache / build.build_key() / "manifest.json").read_text(encoding="utf-8")),
    )


def _kill_while_compiling(folder: Path, cache: Path, start_python: Callable[..., subprocess.Popen[str]]) -> None:
    # A compiler that says when it starts, and never ends.
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    started = os.open(pipe, os.O_RDWR)
    compiler = folder / "compiler"
    compiler.write_text(f"#!/bin/sh\necho >{pipe}\nexec tail -f /dev/null\n", encoding="utf-8")
    compiler.chmod(0o755)
    # A process group of its own, so that the compiler can be killed, too.
    program = f"import os; os.setpgid(0, 0); {_LOAD}"
    process = start_python("-c", program, HPU_SIM_CACHE=str(cache), CXX=str(compiler))
    try:
        assert select.select([started], [], [], 120)[0]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        os.close(started)


def test_a_killed_build_leaves_nothing_to_load(rebuild: _Rebuild) -> None:
    """There is the folder it worked in, and no entry."""
    assert build.build_key() not in rebuild.after_kill
    assert any(name.startswith(f"{build.build_key()}.build-") for name in rebuild.after_kill)


def test_after_a_killed_build_the_device_is_built(rebuild: _Rebuild) -> None:
    """Both processes that come next have it."""
    assert [result[:2] for result in rebuild.results] == [(0, "hpu_sim_native\n")] * 2


def test_processes_that_start_together_build_once(rebuild: _Rebuild) -> None:
    """One says that it builds, the other waits in silence."""
    message = f"hpu-sim: building the simulated device once for {build.build_key()}, about half a minute\n"

    assert sorted(error for _, _, error in rebuild.results) == ["", message]


def test_a_build_cleans_up(rebuild: _Rebuild) -> None:
    """In the end there is the entry, and at most its lock."""
    key = build.build_key()

    assert rebuild.in_the_end in ([key], [key, f"{key}.lock"])


def test_an_entry_vouches_for_its_library(rebuild: _Rebuild) -> None:
    """The manifest holds a digest."""
    assert list(rebuild.manifest) == ["sha256"]
    assert re.fullmatch("[0-9a-f]{64}", rebuild.manifest["sha256"])

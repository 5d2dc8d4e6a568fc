"""Tests of HPUCheckpointIO on the CPU: errors, loading, and killed processes; test_paths.py has paths."""

import contextlib
import functools
import inspect
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from fsspec import filesystem
from fsspec.core import url_to_fs
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from hpu_core import HPUCheckpointIO, frameworks
from hpu_core._lightning import CheckpointIO, TorchCheckpointIO
from hpu_core.checkpoints import plugin as plugin_module
from hpu_testing.kills import end_before_change, end_beyond, is_killed

_lightning = frameworks.current()
_needs_weights_only = pytest.mark.skipif(_lightning.version < Version("2.6"), reason="Requires: Lightning 2.6")
_needs_weights_only_default = pytest.mark.skipif(
    _lightning.version < Version("2.6") or Version(torch.__version__) < Version("2.6"),
    reason="Requires: torch and Lightning that load weights only by default",
)


@pytest.fixture
def plugin() -> HPUCheckpointIO:
    """The plugin under test."""
    return HPUCheckpointIO()


@pytest.fixture
def memory() -> Iterator[None]:
    """Empty the memory file system afterwards, which counts as remote."""
    yield
    filesystem("memory").store.clear()


@pytest.mark.parametrize("name", ["save_checkpoint", "load_checkpoint", "remove_checkpoint", "teardown"])
def test_signatures_match_lightning(name: str) -> None:
    ours = list(inspect.signature(getattr(HPUCheckpointIO, name)).parameters)
    theirs = list(inspect.signature(getattr(CheckpointIO, name)).parameters)

    assert ours[: len(theirs)] == theirs


@pytest.mark.usefixtures("memory")
def test_remote_file_is_written_without_a_copy(plugin: HPUCheckpointIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pickled checkpoint is in host memory once."""
    written: list[object] = []

    def write(self: io.BytesIO, data: object) -> int:
        written.append(data)
        return 0

    monkeypatch.setattr(type(filesystem("memory").open("memory://any", "wb")), "write", write)
    plugin.save_checkpoint({"weight": torch.zeros(1000)}, "memory://last.ckpt")

    assert [type(data) for data in written] == [memoryview]


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("path", ["{}/last.ckpt", "memory://last.ckpt"])
def test_failure_leaves_the_old_checkpoint(path: str, plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """Pickling ends before a remote file is opened for writing."""
    path = path.format(tmp_path)
    plugin.save_checkpoint({"epoch": 1}, path)

    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        plugin.save_checkpoint({"epoch": 2, "hook": lambda: None}, path)

    assert plugin.load_checkpoint(path) == {"epoch": 1}
    assert {found.name for found in tmp_path.iterdir()} <= {"last.ckpt"}


@pytest.mark.usefixtures("memory")
def test_storage_options_configure_the_file_system(plugin: HPUCheckpointIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are keyword arguments of the fsspec file system."""
    file_systems: list[Any] = []

    def spy(path: str, **options: Any) -> Any:
        file_system, target = url_to_fs(path, **options)
        file_systems.append(file_system)
        return file_system, target

    monkeypatch.setattr(plugin_module, "url_to_fs", spy)
    plugin.save_checkpoint({"epoch": 1}, "memory://last.ckpt", storage_options={"token": "secret"})

    assert [system.storage_options for system in file_systems] == [{"token": "secret"}]
    assert plugin.load_checkpoint("memory://last.ckpt") == {"epoch": 1}


def test_storage_options_must_be_a_mapping(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"^`storage_options` must be a mapping .*, got \['x'\]$"):
        plugin.save_checkpoint({}, tmp_path / "last.ckpt", storage_options=["x"])  # type: ignore[arg-type]


@_needs_weights_only
def test_weights_only(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    plugin.save_checkpoint({"path": Path("x")}, tmp_path / "last.ckpt")

    with pytest.raises(Exception, match="Weights only load failed"):
        plugin.load_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert plugin.load_checkpoint(tmp_path / "last.ckpt", weights_only=False) == {"path": Path("x")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small checkpoint."""
    path = tmp_path_factory.mktemp("saved") / "last.ckpt"
    HPUCheckpointIO().save_checkpoint({"epoch": 3, "state_dict": {"weight": torch.arange(3.0)}}, path)
    return path


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"hello" * 100, b"\x80\x02."])
def test_damaged_checkpoint_is_named(content: bytes, plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    path = tmp_path / "last.ckpt"
    path.write_bytes(content)

    with pytest.raises((RuntimeError, pickle.UnpicklingError)) as caught:
        plugin.load_checkpoint(path)
    assert isinstance(caught.value, pickle.UnpicklingError) or str(caught.value).startswith(
        f"cannot load the checkpoint {str(path)!r}, which may be damaged: "
    )


@_needs_weights_only_default
@given(cut=st.integers(0, 2000), put=st.binary(max_size=20), end=st.integers(0, 40))
def test_any_damage_is_an_error_of_the_documented_classes(cut: int, put: bytes, end: int, saved: Path) -> None:
    """Whatever the bytes are, nothing in them is called."""
    content = saved.read_bytes()
    damaged = saved.with_name("damaged.ckpt")
    damaged.write_bytes(content[:cut] + put + content[cut + end :])
    with mock.patch("os.system", side_effect=AssertionError), contextlib.suppress(RuntimeError, pickle.UnpicklingError):
        assert isinstance(HPUCheckpointIO().load_checkpoint(damaged), dict)


@_needs_weights_only_default
def test_code_in_a_checkpoint_is_not_called(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save({"state_dict": _Program(marker)}, tmp_path / "last.ckpt")

    with pytest.raises(pickle.UnpicklingError):
        plugin.load_checkpoint(tmp_path / "last.ckpt")
    assert not marker.exists()


@_needs_weights_only
def test_a_url_loads_weights_only(plugin: HPUCheckpointIO, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an HTTP server sends is not unpickled unless the user says so."""
    calls = []
    monkeypatch.setattr(TorchCheckpointIO, "load_checkpoint", lambda *args, **options: calls.append(options))
    plugin.load_checkpoint("https://example.org/last.ckpt")
    plugin.load_checkpoint("https://example.org/last.ckpt", weights_only=False)

    assert [options["weights_only"] for options in calls] == [True, False]


class _Program:
    """Object whose pickle creates a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._marker,)


@pytest.mark.usefixtures("forks")
def test_kills_leave_one_checkpoint(
    plugin: HPUCheckpointIO, tmp_path: Path, record_property: Callable[[str, int], None]
) -> None:
    """Before each change of the folder, and at moments of the writing, all over the file."""
    path = tmp_path / "last.ckpt"

    def save(step: int) -> None:
        plugin.save_checkpoint({"step": step, "weights": torch.full((1 << 14,), float(step))}, path)

    save(1)
    size = path.stat().st_size
    moments = [functools.partial(end_beyond, part * size // 16) for part in range(16)]
    moments += [functools.partial(end_before_change, number) for number in range(2)]
    for moment in moments:
        assert is_killed(moment, lambda: save(2))
        checkpoint = plugin.load_checkpoint(path)
        assert checkpoint["weights"].unique().tolist() == [checkpoint["step"]]
        assert len(list(tmp_path.iterdir())) <= 2, "more than one stale file is left"
    record_property("kills", len(moments))


@pytest.mark.parametrize(
    ("file", "strategy"), [("meta.pt", "hpu_fsdp"), ("zero_pp_rank_0_mp_rank_00_model_states.pt", "hpu_deepspeed")]
)
def test_sharded_folder_is_an_error_that_names_the_strategy(file: str, strategy: str, tmp_path: Path) -> None:
    (tmp_path / file).touch()
    with pytest.raises(
        IsADirectoryError, match=rf"cannot load the checkpoint, which is a folder.*`strategy='{strategy}'`"
    ):
        HPUCheckpointIO().load_checkpoint(tmp_path)


def test_repr_names_framework(plugin: HPUCheckpointIO) -> None:
    assert repr(plugin).startswith(f"<HPUCheckpointIO of {_lightning.name} ")

"""HPUCheckpointIO on the CPU: paths, errors, loading, and what a killed process leaves."""

import inspect
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from packaging.version import Version

from hpu_core import HPUCheckpointIO, frameworks
from hpu_core._lightning import CheckpointIO, TorchCheckpointIO, get_filesystem

_KILLS = 50

_lightning = frameworks.current()
_needs_weights_only = pytest.mark.skipif(_lightning.version < Version("2.6"), reason="Requires: Lightning 2.6")


@pytest.fixture
def plugin() -> HPUCheckpointIO:
    """The plugin under test."""
    return HPUCheckpointIO()


@pytest.fixture
def memory() -> Iterator[None]:
    """A remote file system, as far as Lightning can tell, which is empty afterwards."""
    yield
    get_filesystem("memory://").store.clear()


def test_a_checkpoint_comes_back(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """What was saved is loaded."""
    checkpoint = {"epoch": 3, "state_dict": {"weight": torch.arange(3.0)}}
    plugin.save_checkpoint(checkpoint, tmp_path / "last.ckpt")

    loaded = plugin.load_checkpoint(tmp_path / "last.ckpt")

    assert loaded["epoch"] == 3
    assert loaded["state_dict"]["weight"].tolist() == [0, 1, 2]


def test_it_derives_from_lightnings_plugin(plugin: HPUCheckpointIO) -> None:
    """Lightning takes it wherever it takes its own."""
    assert isinstance(plugin, TorchCheckpointIO)


@pytest.mark.parametrize("name", ["save_checkpoint", "load_checkpoint", "remove_checkpoint", "teardown"])
def test_methods_take_what_lightning_passes(name: str) -> None:
    """Each parameter of Lightning's plugins has the same name and place here."""
    ours = list(inspect.signature(getattr(HPUCheckpointIO, name)).parameters)
    theirs = list(inspect.signature(getattr(CheckpointIO, name)).parameters)

    assert ours[: len(theirs)] == theirs


def test_missing_folders_are_made(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """ModelCheckpoint leaves that to the plugin."""
    path = tmp_path / "version_0" / "checkpoints" / "last.ckpt"
    plugin.save_checkpoint({"epoch": 1}, path)

    assert plugin.load_checkpoint(path) == {"epoch": 1}


@pytest.mark.parametrize("spelling", ["{}", "file://{}", "local://{}"])
def test_local_paths_are_spelled_as_fsspec_does(spelling: str, plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """A URL of a local file is a local file."""
    plugin.save_checkpoint({"epoch": 1}, spelling.format(tmp_path / "last.ckpt"))

    assert plugin.load_checkpoint(tmp_path / "last.ckpt") == {"epoch": 1}


def test_the_home_folder_is_expanded(plugin: HPUCheckpointIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A "~" means the same for saving as for loading."""
    monkeypatch.setenv("HOME", str(tmp_path))

    plugin.save_checkpoint({"epoch": 1}, "~/last.ckpt")

    assert plugin.load_checkpoint(tmp_path / "last.ckpt") == plugin.load_checkpoint("~/last.ckpt") == {"epoch": 1}


def test_a_relative_path_is_relative_to_the_working_folder(
    plugin: HPUCheckpointIO, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bare file name goes where `open` would put it."""
    monkeypatch.chdir(tmp_path)

    plugin.save_checkpoint({"epoch": 1}, "last.ckpt")

    assert plugin.load_checkpoint(tmp_path / "last.ckpt") == {"epoch": 1}


@pytest.mark.usefixtures("memory")
def test_remote_paths_go_through_fsspec(plugin: HPUCheckpointIO) -> None:
    """A URL is saved to and loaded from its file system."""
    plugin.save_checkpoint({"epoch": 1}, "memory://runs/7/last.ckpt")

    assert plugin.load_checkpoint("memory://runs/7/last.ckpt") == {"epoch": 1}


@pytest.mark.usefixtures("memory")
def test_a_failure_leaves_the_remote_checkpoint(plugin: HPUCheckpointIO) -> None:
    """Nothing is opened for writing before everything has been pickled."""
    plugin.save_checkpoint({"epoch": 1}, "memory://last.ckpt")

    with pytest.raises(AttributeError, match="lambda"):
        plugin.save_checkpoint({"epoch": 2, "hook": lambda: None}, "memory://last.ckpt")

    assert plugin.load_checkpoint("memory://last.ckpt") == {"epoch": 1}


def test_a_failure_leaves_the_old_checkpoint(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """A checkpoint that cannot be pickled does not cost the one before."""
    path = tmp_path / "last.ckpt"
    plugin.save_checkpoint({"epoch": 1}, path)

    with pytest.raises(AttributeError, match="lambda"):
        plugin.save_checkpoint({"epoch": 2, "hook": lambda: None}, path)

    assert plugin.load_checkpoint(path) == {"epoch": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_torchs_writer_does_not_hide_the_systems_reason(plugin: HPUCheckpointIO) -> None:
    """A full disk is said as such, though torch reports an archive that it could not finish."""
    with pytest.raises(OSError, match=r"cannot save the checkpoint.*No space left on device: '/dev/full'"):
        plugin.save_checkpoint({"weight": torch.zeros(1 << 20)}, "/dev/full")


def test_storage_options_are_refused(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """As in Lightning's own plugins, they are for subclasses to define."""
    with pytest.raises(TypeError, match=r"`storage_options` is not supported by HPUCheckpointIO, got {'x': 1}"):
        plugin.save_checkpoint({}, tmp_path / "last.ckpt", storage_options={"x": 1})


def test_a_missing_checkpoint_is_said(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """Lightning's own error stays."""
    with pytest.raises(FileNotFoundError, match=r"last\.ckpt"):
        plugin.load_checkpoint(tmp_path / "last.ckpt")


def test_a_checkpoint_can_be_removed(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """Lightning's own way of removing stays."""
    plugin.save_checkpoint({}, tmp_path / "last.ckpt")
    plugin.remove_checkpoint(tmp_path / "last.ckpt")

    assert list(tmp_path.iterdir()) == []


def test_a_map_location_is_passed_on(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """Who asks for another place gets it."""
    plugin.save_checkpoint({"weight": torch.zeros(1)}, tmp_path / "last.ckpt")

    loaded = plugin.load_checkpoint(tmp_path / "last.ckpt", map_location="meta")

    assert loaded["weight"].device == torch.device("meta")


@_needs_weights_only
def test_weights_only_is_passed_on(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """Who asks for weights only gets no other object."""
    plugin.save_checkpoint({"path": Path("x")}, tmp_path / "last.ckpt")

    with pytest.raises(Exception, match="Weights only load failed"):
        plugin.load_checkpoint(tmp_path / "last.ckpt", weights_only=True)


@_needs_weights_only
def test_everything_loads_for_those_who_trust_the_file(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """`weights_only=False` loads any object."""
    plugin.save_checkpoint({"path": Path("x")}, tmp_path / "last.ckpt")

    assert plugin.load_checkpoint(tmp_path / "last.ckpt", weights_only=False) == {"path": Path("x")}


def test_it_says_which_framework_it_is_for(plugin: HPUCheckpointIO) -> None:
    """Its representation is what Lightning prints when it refuses it."""
    assert repr(plugin).startswith(f"<HPUCheckpointIO of {_lightning.name} ")


@pytest.mark.timeout(240)
def test_a_killed_process_leaves_a_whole_checkpoint(plugin: HPUCheckpointIO, tmp_path: Path) -> None:
    """However often the process is killed while it saves, the checkpoint loads and is of one piece."""
    path = tmp_path / "last.ckpt"
    steps = []
    script = Path(__file__).with_name("killed_saver.py")
    command = [sys.executable, str(script), str(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as saver:
        for _ in range(_KILLS):
            _kill_at_random(saver)
            steps.append(_step(plugin, path))
        saver.communicate()

    assert steps == sorted(set(steps)), "a child loads the checkpoint and saves at least one of its own"
    assert len(list(tmp_path.iterdir())) <= 2, "more than one leftover is there"


def _kill_at_random(saver: "subprocess.Popen[bytes]") -> None:
    """Have a child save, and kill it at a random moment of its second or third save."""
    assert saver.stdin is not None
    assert saver.stdout is not None
    saver.stdin.write(b"\n")
    saver.stdin.flush()
    child, events = map(int, saver.stdout.readline().split())
    saver.stdout.read(random.randrange(2 * events))  # noqa: S311 - no secret.
    os.kill(child, signal.SIGKILL)
    # What it said until it died; the end of the line comes from its parent.
    saver.stdout.readline()


def _step(plugin: HPUCheckpointIO, path: Path) -> int:
    """Load the checkpoint, check that all of it is of one save, and return which one that was."""
    checkpoint = plugin.load_checkpoint(path)
    step = int(checkpoint["step"])
    weights = checkpoint["state_dict"]["weights"]

    assert torch.equal(weights, torch.full_like(weights, step))
    return step

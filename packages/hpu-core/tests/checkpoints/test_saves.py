"""Tests of saves of several machines, which are forked processes: with a disk each, and with one that they share."""

import inspect
import itertools
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed.checkpoint import state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemWriter

from hpu_core.checkpoints import folders, saves
from hpu_core.checkpoints.files import PREFIX
from hpu_testing.kills import end_before_change

pytestmark = pytest.mark.usefixtures("forks")

# Files of each of two ranks.
FILES = ((".metadata", "meta.pt", "__0_0.distcp"), ("__1_0.distcp",))
PATH = Path("run")
ALONE = saves.Ranks(0, 0, lambda value: value, lambda text: [text])


class _Job:
    """A job of two machines with one rank each."""

    def __init__(self, tmp_path: Path, disks: str) -> None:
        self.folders = [tmp_path / name for name in (("0", "1") if disks == "own" else ("0", "0"))]
        for folder in self.folders:
            folder.mkdir(exist_ok=True)

    def run(
        self, function: Callable[[saves.Ranks], object], killed: int | None = None, change: int | None = None
    ) -> list[str]:
        """Call a function on each rank, and return its errors; kill one rank before its n-th change of a folder."""
        links, children = multiprocessing.Pipe(), []
        for rank in range(2):
            child = os.fork()
            if not child:
                links[1 - rank].close()
                self._be(rank, function, links[rank], change if rank == killed else None)
            children.append(child)
        for link in links:
            link.close()
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        return ["killed" if code else self._report(rank).read_text() for rank, code in enumerate(codes)]

    def _report(self, rank: int) -> Path:
        return self.folders[0].with_name(f"error of {rank}")

    def _be(self, rank: int, function: Callable[[saves.Ranks], object], link: Any, change: int | None) -> None:
        """Call a function as a rank, report its error, and exit."""
        os.chdir(self.folders[rank])

        def exchange(value: Any) -> list[Any]:
            link.send(value)
            other = link.recv()
            return [value, other] if rank == 0 else [other, value]

        def all_gather_object(into: list[Any], value: Any, group: object) -> None:
            into[:] = exchange(value)

        if change is not None:
            end_before_change(change)
        report = ""
        try:
            with (
                mock.patch("torch.distributed.get_world_size", return_value=2),
                mock.patch("torch.distributed.all_gather_object", all_gather_object),
            ):
                function(saves.Ranks(rank, 0, lambda value: exchange(value)[0], exchange))
        except BaseException as error:  # noqa: BLE001 - the process must not run the rest of the tests.
            report = f"{type(error).__name__}: {error}"
        finally:
            self._report(rank).write_text(report)
            os._exit(0)

    def content(self) -> dict[str, str]:
        """Return the checkpoint's files of both machines."""
        paths = [path for folder in self.folders for path in (folder / PATH).rglob("*") if path.is_file()]
        return {path.relative_to(path.parents[-2]).name: path.read_text() for path in paths}


def _save(
    step: int, kind: str = "sync", fail: Callable[[saves.Ranks], None] | None = None
) -> Callable[[saves.Ranks], None]:
    """Return a function that saves a step."""

    def save(ranks: saves.Ranks) -> None:
        shared = saves.SharedSave(PATH, ranks)

        def write(_: Any = None) -> None:
            if fail is not None:
                fail(ranks)
            for name in FILES[ranks.rank]:
                (shared.new / name).write_text(str(step))

        if kind == "async":
            saves.write_and_commit(write, shared, None)
            return
        with shared.writing():
            write()
        shared.commit()

    return save


def _load(ranks: saves.Ranks) -> None:
    saves.locate(PATH, ranks)


def _kills(
    prepare: Callable[[], _Job], function: Callable[[saves.Ranks], None], rank: int, step: int
) -> Iterator[_Job]:
    for number in itertools.count(step=step):
        job = prepare()
        if job.run(function, rank, number)[rank] != "killed":
            return
        yield job


@pytest.mark.parametrize("disks", ["own", "shared"])
def test_two_machines_save(disks: str, tmp_path: Path) -> None:
    job = _Job(tmp_path, disks)

    for step in (1, 2):
        assert job.run(_save(step)) == ["", ""]

    content = job.content()
    assert len(content.pop(folders.RECORD)) == 16
    assert content == dict.fromkeys((*FILES[0], *FILES[1]), "2")
    assert job.run(_load) == ["", ""]


@pytest.mark.parametrize(
    ("kind", "disks", "every"),
    [
        ("async", "own", 4),
        *(
            pytest.param(kind, disks, 1, marks=pytest.mark.slow)
            for kind in ("sync", "async")
            for disks in ("own", "shared")
        ),
    ],
)
@pytest.mark.parametrize("killed", [0, 1])
@pytest.mark.parametrize("first", ["first save", "later save"])
def test_a_kill_of_each_machine_leaves_one_step(  # noqa: PLR0913, PLR0917 - a table.
    first: str,
    kind: str,
    disks: str,
    killed: int,
    every: int,
    tmp_path: Path,
    record_property: Callable[[str, int], None],
) -> None:
    """The step of both is the same once the checkpoint has been located, at each moment of the kill."""
    numbers = itertools.count()

    def prepare() -> _Job:
        folder = tmp_path / str(next(numbers))
        folder.mkdir()
        job = _Job(folder, disks)
        if first == "later save":
            job.run(_save(1))
            for folder in job.folders:
                (folder / PATH / "mine.txt").write_text("mine")
        return job

    kills = 0
    for job in _kills(prepare, _save(2, kind), killed, every):
        kills += 1
        assert job.run(_load) == ["", ""]
        content = job.content()
        assert content.pop("mine.txt", "mine") == "mine"
        steps = {text for name, text in content.items() if not name.startswith(PREFIX)}
        assert len(steps) == (first == "later save") or steps == {"2"}
        assert job.run(_save(3, kind)) == ["", ""]
        assert {text for name, text in job.content().items() if name in FILES[0] + FILES[1]} == {"3"}
        assert not list(job.folders[0].rglob("*.partial"))
    assert kills > (0 if (killed, disks) == (1, "shared") else 12 // every * (first == "later save"))
    record_property("kills", kills)


def test_ranks_learn_which_machine_could_not_write(tmp_path: Path) -> None:
    """No machine commits."""
    job = _Job(tmp_path, "own")
    job.run(_save(1))

    def fail(ranks: saves.Ranks) -> None:
        if ranks.rank == 1:
            raise OSError("no space left")

    first, second = job.run(_save(2, "async", fail))

    assert first.startswith("RuntimeError: cannot save the checkpoint ")
    assert f"run', the old one is unchanged: rank 1 on {socket.gethostname()}: {second}" in first
    assert "cannot save the checkpoint, the old one is unchanged: no space left" in second
    assert {text for name, text in job.content().items() if name in FILES[0] + FILES[1]} == {"1"}


def test_a_machine_that_cannot_commit_is_named_and_takes_it_up(tmp_path: Path) -> None:
    job = _Job(tmp_path, "own")
    job.run(_save(1))
    obstacle = job.folders[1] / PATH / "__1_0.distcp"

    def block(ranks: saves.Ranks) -> None:
        if ranks.rank == 1:
            Path(PATH, "__1_0.distcp").unlink()
            Path(PATH, "__1_0.distcp").mkdir()

    first, second = job.run(_save(2, fail=block))

    assert "is complete, but could not replace the old checkpoint everywhere" in first
    assert f"rank 1 on {socket.gethostname()}: IsADirectoryError" in first
    assert second.startswith("IsADirectoryError")
    obstacle.rmdir()
    assert job.run(_load) == ["", ""]
    assert {text for name, text in job.content().items() if name in FILES[0] + FILES[1]} == {"2"}


def test_machines_with_different_saves_are_an_error(tmp_path: Path) -> None:
    job = _Job(tmp_path, "own")
    job.run(_save(1))
    (job.folders[1] / PATH / folders.RECORD).write_text("another")

    first, second = job.run(_load)

    assert first.startswith("RuntimeError: cannot load the checkpoint ")
    assert f"rank 1 on {socket.gethostname()}: {second}" in first
    assert "must be of one save on all machines" in second


def test_two_runs_into_one_folder_leave_one_of_them(tmp_path: Path) -> None:
    first, second = (saves.SharedSave(tmp_path / "run", ALONE) for _ in range(2))
    for number, save in enumerate((first, second)):
        (save.new / ".metadata").write_text(str(number))
    (first.new / "__1_0.distcp").write_text("0")
    first.commit()
    second.commit()

    assert (tmp_path / "run" / ".metadata").read_text() == "1"
    assert not (tmp_path / "run" / "__1_0.distcp").exists()
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_one_file_replaces_no_file_of_others(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "meta.pt").touch()
    (tmp_path / "run" / "tokenizer.json").touch()

    with pytest.raises(IsADirectoryError, match=r"cannot replace a folder with 'tokenizer\.json', which no save"):
        saves.SharedSave(tmp_path / "run", ALONE, as_file=True)

    (tmp_path / "run" / "tokenizer.json").unlink()
    save = saves.SharedSave(tmp_path / "run", ALONE, as_file=True)
    save.new.write_text("new")
    save.commit()
    assert (tmp_path / "run").read_text() == "new"


def test_a_remote_folder_is_refused() -> None:
    """Torch and DeepSpeed would take the URL for the name of a local folder."""
    with pytest.raises(ValueError, match="memory://run"):
        saves.SharedSave("memory://run", ALONE)


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("write", ["torch.save", "torch.distributed.checkpoint"])
def test_full_file_system_is_named(write: str, tmp_path: Path) -> None:
    """The error of torch's writers is another one."""
    save = saves.SharedSave(tmp_path / "run", ALONE)
    tensor = torch.zeros(1 << 20)

    def write_tensor() -> None:
        if write == "torch.save":
            torch.save(tensor, save.new / "shard")
            return
        # Later versions find out by themselves that there is one process.
        save_shards: Any = getattr(state_dict_saver, "save", None) or state_dict_saver.save_state_dict
        options = {"no_dist": True} if "no_dist" in inspect.signature(save_shards).parameters else {}
        save_shards({"a": tensor}, storage_writer=FileSystemWriter(save.new), **options)

    with pytest.raises(OSError, match="old one is unchanged: File too large") as caught, save.writing():
        write_tensor()

    assert caught.value.filename == str(tmp_path / "run")


def test_error_while_the_file_system_takes_data_stays_as_it_is(tmp_path: Path) -> None:
    save = saves.SharedSave(tmp_path / "run", ALONE)

    with pytest.raises(RuntimeError, match="shapes differ"), save.writing():
        raise RuntimeError("shapes differ")


@pytest.mark.skipif(os.geteuid() == 0, reason="Requires: a user without root permissions")
def test_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    with pytest.raises(PermissionError, match="cannot save the checkpoint, the old one is unchanged"):
        saves.SharedSave(tmp_path, ALONE)

"""The loader: arguments, random numbers of samples, state, and data sets that only the host takes."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, SequentialSampler, TensorDataset

from hpu_core import bridge
from hpu_data import DataLoader
from hpu_data.loader import SeededDataset
from hpu_data.sampler import SampleKey

from .modules import image_folder, training


class Noise(Dataset[Any]):
    """Samples of random numbers of all three generators."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(torch.rand(1)), random.random(), np.random.rand()]), index  # noqa: NPY002, S311 - as transforms use them


def test_random_numbers_depend_on_the_sample_and_the_epoch_alone() -> None:
    """Not on workers, ranks, order or batch size."""
    found: list[dict[int, list[float]]] = []
    for options in ({"num_workers": 2}, {"batch_size": 3}, {"rank": 1, "num_replicas": 2}):
        loader = DataLoader(Noise(), **{"batch_size": 5, "shuffle": True, **options})  # type: ignore[arg-type] # a mixture
        epoch = [(label, noise) for noises, labels in loader for noise, label in zip(noises, labels, strict=True)]
        found.append({int(label): noise.tolist() for label, noise in epoch})
        again = [noise.tolist() for noises, _ in loader for noise in noises]
        assert not {str(each) for each in again} & {str(each) for each in found[-1].values()}

    assert found[0] == found[1]
    assert found[2].items() <= found[0].items()
    assert len({str(noise) for noise in found[0].values()}) == 10


def test_generators_of_the_program_are_left_alone() -> None:
    def states() -> Any:
        legacy: Any = np.random.get_state()  # noqa: NPY002 - what transforms use
        return torch.get_rng_state().tolist(), random.getstate(), legacy[1].tolist(), legacy[2]

    before = states()

    SeededDataset(Noise(), None)[SampleKey.of(3, 0, 0)]

    assert states() == before


@pytest.mark.parametrize("decode", ["card", "host"])
def test_two_epochs_resumed_within_one_equal_undisturbed_ones(decode: Any, folder: Path) -> None:
    """Pixels bit for bit, with random crops and flips, from the state of another loader."""
    bridge.open_device()
    dataset = image_folder(folder, training())

    def loader() -> DataLoader:
        return DataLoader(dataset, 3, True, drop_last=True, decode=decode, seed=4)

    whole = [batch for each in [loader()] for _ in range(2) for batch in each]
    first, second = loader(), loader()
    resumed = [batch for _, batch in zip(range(2), first, strict=False)]
    second.load_state_dict(first.state_dict())
    resumed += [batch for _ in range(2) for batch in second]

    assert second.state_dict() == {"epoch": 1, "position": 3, "seed": 4, "samples": 10, "batch_size": 3, "ranks": 1}
    assert len(whole) == len(resumed) == 6
    for expected, found in zip(whole, resumed, strict=True):
        assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_workers_are_kept_between_epochs_and_ended_on_close() -> None:
    loader = DataLoader(Noise(), 5, num_workers=1)
    list(loader)
    iterator: Any = loader._iterator
    [worker] = iterator._workers
    identity = id(iterator)
    del iterator
    list(loader)
    assert id(loader._iterator) == identity

    loader.close()

    worker.join(20)
    assert worker.exitcode == 0
    assert len(list(loader)) == 2


def test_any_data_set_is_taken_on_the_host() -> None:
    loader = DataLoader(TensorDataset(torch.arange(7)), 3, pad_label=None)

    assert [batch[0].tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    assert loader.decodes_on == "host"


def test_samples_that_are_no_pairs_cannot_be_masked() -> None:
    with pytest.raises(TypeError, match="must be pairs of an image and an int to be padded, got tuple"):
        list(DataLoader(TensorDataset(torch.arange(7)), 3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": "gpu"}, "`decode` must be 'auto', 'card' or 'host', got 'gpu'"),
        ({"sampler": range(3)}, "`sampler` and `generator` must be None: pass `shuffle` and `seed`"),
        ({"generator": torch.Generator()}, "`sampler` and `generator` must be None"),
        ({"batch_size": 0}, "`batch_size` must be a positive int"),
    ],
)
def test_arguments_are_checked(options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(Noise(), **options)


def test_a_foreign_batch_sampler_is_followed() -> None:
    """As Lightning passes one in `predict`."""
    batches = BatchSampler(SequentialSampler(range(10)), 4, drop_last=False)
    loader = DataLoader(SeededDataset(Noise(), None), batch_sampler=batches)

    assert [labels.tolist() for _, labels in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert loader.state_dict() == {}
    loader.load_state_dict({})


def test_line_in_the_log_without_lightning(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("hpu_core.frameworks.imported", lambda: ())
    caplog.set_level("INFO", "hpu_data")

    list(DataLoader(Noise(), 5, decode="host"))

    assert caplog.messages == ["hpu-data: 10 samples are decoded on the host (0 workers): `decode` is 'host'"]

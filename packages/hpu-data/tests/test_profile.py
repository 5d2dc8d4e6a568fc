"""The card's decoder in a profile."""

from pathlib import Path

from torch.profiler import ProfilerActivity, profile

from hpu_core import bridge
from hpu_data import DataLoader
from hpu_profiler.analysis.host_work import is_data_loading
from hpu_profiler.trace.model import HostSpan

from .modules import evaluation, image_folder


def test_profiler_takes_it_for_data_loading(folder: Path) -> None:
    """As torch's own loader, so hpu-profiler's findings and shares count it."""
    bridge.open_device()
    loader = DataLoader(image_folder(folder, evaluation()), 5, decode="card")

    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        list(loader)

    names = [event.name for event in recorded.events() or ()]
    assert sum(is_data_loading(HostSpan(name, 0, 1, 0)) for name in names) == 2

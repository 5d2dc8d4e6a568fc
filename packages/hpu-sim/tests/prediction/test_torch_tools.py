"""Canary of the private names of torch that the planner uses."""

from __future__ import annotations

import inspect

import pytest
import torch

from hpu_sim.prediction import torch_tools


@pytest.mark.needs_torch("2.8", "interfaces for the planner")
def test_the_memory_tracker_has_what_the_planner_overrides() -> None:
    tracker, categories, updates = torch_tools.mem_tracker_names()

    for name in (
        "_update_snap",
        "_update_peak_stats",
        "_pre_fw_hook",
        "_post_fw_hook",
        "_pre_bw_hook",
        "_post_bw_hook",
    ):
        assert callable(getattr(tracker, name))
    assert list(inspect.signature(tracker._update_snap).parameters) == [
        "self",
        "u_type",
        "winfo",
        "old_mem_consumed",
        "old_reftype",
    ]
    assert {each.name for each in categories} == {"PARAM", "BUFFER", "GRAD", "ACT", "TEMP", "OPT", "OTH"}
    assert {each.name for each in updates} == {"ADD", "DEL", "REF", "SIZE"}


@pytest.mark.parametrize("count", [1, 3, 4, 16])
def test_chunks_are_those_of_fsdp(count: int) -> None:
    modules = [module for module, name, _ in torch_tools.fsdp_replacements() if name == "_chunk_with_empty"]
    if not modules:
        pytest.skip("this torch has no FSDP2 of this form")
    tensor = torch.arange(20).view(10, 2)

    expected = modules[0]._chunk_with_empty(tensor, count, dim=0)

    chunks = torch_tools.Chunks(tensor, count, dim=0)
    assert len(chunks) == len(expected)
    for index, chunk in enumerate(expected):
        assert torch.equal(chunks[index], chunk)

"""Tests of what is a region."""

from typing import Any

import pytest
from torch import nn

from hpu_compile import find_regions
from hpu_compile.regions import unwrap

from .modules import Block, Classifier, Gate


def _names(module: nn.Module, regions: Any = "blocks") -> list[list[str]]:
    return [list(region.modules) for region in find_regions(module, regions)]


class Tower(nn.Module):
    """List of blocks, with parts around it."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(2, 2)
        self.blocks = nn.ModuleList(Block() for _ in range(2))


class Expert(nn.Module):
    """Block with a list of blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(Block() for _ in range(2))


class Pair(nn.Module):
    """Blocks that are in no list."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.other = Block(), Block(), Gate()


class Loss(nn.Module):
    """Part without parameters, as a metric is."""


def test_elements_of_lists_are_blocks() -> None:
    assert _names(Tower()) == [["blocks.0", "blocks.1"]]


def test_blocks_of_a_class_are_one_region() -> None:
    module = nn.ModuleList([Block(), Gate(), Block(), Gate()])

    assert _names(module) == [["0", "2"], ["1", "3"]]
    assert [region.name for region in find_regions(module)] == ["Block", "Gate"]


def test_outer_blocks_come_before_inner_ones() -> None:
    assert _names(nn.ModuleList([Expert(), Expert()])) == [["0", "1"]]


def test_only_repeated_elements_of_a_sequential_are_blocks() -> None:
    assert _names(nn.Sequential(Block(), Gate(), Block())) == [["0", "2"]]


def test_blocks_without_a_list_are_found_by_class() -> None:
    assert _names(Pair()) == [["first", "second"]]


def test_layers_of_one_operation_are_no_blocks() -> None:
    assert _names(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])) == [[""]]


def test_lightning_module_without_blocks_has_its_parts() -> None:
    """Its own calls are not those of the steps, and metrics have nothing to compile."""
    model = Classifier(count=0)
    model.loss = Loss()

    assert _names(model) == [["stem"], ["head"]]


@pytest.mark.parametrize("wanted", ["blocks.1", "Block", Block, nn.Module])
def test_modules_are_named_by_path_and_by_class(wanted: Any) -> None:
    found = [name for names in _names(Tower(), [wanted]) for name in names]

    assert "blocks.1" in found
    assert (found == ["blocks.1"]) == (wanted == "blocks.1")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["block.0"], r"got 'block.0': its direct parts are \['stem', 'blocks'\]"),
        ([nn.Conv2d], r"got 'Conv2d': its direct parts are \['stem', 'blocks'\]"),
        ([], "must name a module or a class, got an empty list"),
        ("blocks.0", r"must be 'blocks' or a list of names and classes, got 'blocks.0': write \['blocks.0'\]"),
    ],
)
def test_unknown_regions_are_refused(wanted: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_regions(Tower(), wanted)


def test_other_types_are_refused() -> None:
    bad: Any = [3]
    with pytest.raises(TypeError, match="names of modules, names of classes and classes, got 3"):
        find_regions(Tower(), bad)


class DistributedDataParallel(nn.Module):
    """Wrapper with the name of torch's, which needs a process group."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


class FullyShardedDataParallel(nn.Module):
    """Wrapper with the name of torch's, and its name of the module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._fsdp_wrapped_module = module

    @property
    def module(self) -> nn.Module:
        """The module."""
        inner: nn.Module = self._fsdp_wrapped_module
        return inner


def test_wrappers_are_looked_through() -> None:
    """Names are those of the model, and the inner modules are compiled."""
    tower = Tower()
    first = tower.blocks[0]
    for index in range(2):
        tower.blocks[index] = FullyShardedDataParallel(tower.blocks[index])
    wrapped = DistributedDataParallel(FullyShardedDataParallel(tower))

    assert unwrap(wrapped) is tower
    for regions in ("blocks", ["Block"]):
        (region,) = find_regions(wrapped, regions)
        assert list(region.modules) == ["blocks.0", "blocks.1"]
        assert region.modules["blocks.0"] is first


def test_sharded_modules_are_regions_of_a_model_without_blocks() -> None:
    """A region with sharded modules inside would end at each of them, because their hooks cannot be traced."""
    linear = FullyShardedDataParallel(nn.Linear(2, 2))

    assert _names(nn.Sequential(linear, nn.ReLU())) == [["0"]]

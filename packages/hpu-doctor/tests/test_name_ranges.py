"""Tests of the short texts for many ranks or machines."""

import pytest

from hpu_doctor.name_ranges import format_hosts, format_ranks


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [([3], "rank 3"), ([3, 1], "ranks 1, 3"), ([0, 1], "ranks 0, 1"), ([20, *range(8, 16)], "ranks 8-15, 20")],
)
def test_format_ranks(ranks: list[int], expected: str) -> None:
    assert format_ranks(ranks) == expected


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        (["node-2", "node-1"], "node-1,node-2"),
        ([f"host{index:03}" for index in range(1, 128)], "host[001-127]"),
        (["n098", "n099", "n100", "n8", "n9", "n10", "n11", "n300"], "n[8-11,098-100,300]"),
        (["a-1.dc2.net", "a-2.dc2.net", "a-4.dc2.net", "b"], "a-[1,2,4].dc2.net,b"),
        (["rack1-node1", "rack1-node2", "rack1-node3", "rack2-node1"], "rack1-node[1-3],rack2-node1"),
        (["alpha", "beta"], "alpha,beta"),
    ],
)
def test_format_hosts(hosts: list[str], expected: str) -> None:
    assert format_hosts(hosts) == expected

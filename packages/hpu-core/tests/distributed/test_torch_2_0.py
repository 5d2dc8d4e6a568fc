"""Replacements for what torch 2.0 lacks, which run on every torch."""

import pytest
from torch._C._distributed_c10d import HashStore

from hpu_core.distributed import _torch_2_0


@pytest.fixture(params=[True, _torch_2_0.IS_TORCH_2_0])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> HashStore:
    """Store, asked as with torch 2.0 and as with the installed torch."""
    monkeypatch.setattr(_torch_2_0, "IS_TORCH_2_0", request.param)
    return HashStore()


def test_the_first_value_of_a_key_stays(store: HashStore) -> None:
    assert [_torch_2_0.set_first(store, "key", value) for value in ("1", "2")] == ["1", "1"]
    assert store.get("key") == b"1"

"""Tests of users' subclasses of Lightning's strategies."""

import pytest

from hpu_core.registration import _strategy_flags


class _Lightning:
    """Stand in for a strategy of Lightning."""


class _Ours(_Lightning):
    """Stand in for the strategy for HPU that replaces it."""


class _Meta(type):
    """Metaclass that ours has not."""


class _OtherMeta(type):
    """Another one."""


class _Theirs(_Lightning, metaclass=_Meta):
    """Stand in for a user's class."""


class _Incompatible(_Ours, metaclass=_OtherMeta):
    """Stand in for a class that cannot have a subclass in common with the user's."""


def test_class_that_cannot_derive_from_ours_is_an_error_that_names_it() -> None:
    with pytest.raises(
        TypeError,
        match=r"`strategy` must derive from _Incompatible on Gaudi, got _Theirs.*derive it from `.*_Incompatible`",
    ):
        _strategy_flags.replace(_Theirs(), _Incompatible, _Lightning)


def test_strategy_for_hpu_stays() -> None:
    strategy = _Ours()

    assert _strategy_flags.replace(strategy, _Ours, _Lightning) is strategy


class _DDP:
    """Stand in for a strategy of Lightning with arguments."""

    def __init__(self, timeout: int = 30) -> None:
        self._timeout = timeout
        self._layer_sync: str | None = None


class _HPUDDP(_DDP):
    """Stand in for the one for HPU, which checks an argument and has an attribute of its own."""

    def __init__(self, timeout: int = 30) -> None:
        super().__init__(max(timeout, 1))
        self.process_groups = "new"

    @classmethod
    def from_lightning(cls, strategy: _DDP) -> "_HPUDDP":
        return cls(strategy._timeout)


class _UsersDDP(_DDP):
    """Stand in for a user's class, which changes attributes after the constructor."""

    def __init__(self) -> None:
        super().__init__(timeout=0)
        self._layer_sync = "user's"
        self.extra = 7


def test_attributes_of_a_users_strategy_stay() -> None:
    """Except the arguments, which the class for HPU keeps, and may change."""
    strategy = _strategy_flags.replace(_UsersDDP(), _HPUDDP, _DDP)

    assert isinstance(strategy, _HPUDDP)
    assert vars(strategy) == {"_timeout": 1, "_layer_sync": "user's", "extra": 7, "process_groups": "new"}

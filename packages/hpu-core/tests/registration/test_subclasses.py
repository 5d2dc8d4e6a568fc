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

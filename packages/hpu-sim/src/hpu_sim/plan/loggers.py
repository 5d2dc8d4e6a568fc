"""Loggers of a planned program: of the program's own classes, and without files, servers and processes."""

from __future__ import annotations

import functools
from typing import Any, Final

_METHODS: Final = ("log_metrics", "log_hyperparams", "log_graph", "save", "finalize", "after_save_checkpoint")


def silence(logger: Any) -> None:
    """Have a logger of Lightning log nothing; it keeps its class for the program's checks and has every method."""
    cls: Any = type(logger)
    logger.__class__ = _silent(cls)


@functools.cache
def _silent(cls: Any) -> type[Any]:
    methods = {name: _do_nothing for name in _METHODS if hasattr(cls, name)}
    return type(cls.__name__, (cls,), {**methods, "experiment": _Sink()})


def _do_nothing(*args: Any, **kwargs: Any) -> None:
    del args, kwargs


class _Sink:
    """Experiment of a logger, with every attribute and every method, that keeps nothing of its arguments."""

    def __getattr__(self, name: str) -> _Sink:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> _Sink:
        del args, kwargs
        return self

    def __getitem__(self, key: object) -> _Sink:
        del key
        return self

    def __setitem__(self, key: object, value: object) -> None:
        """Keep nothing."""

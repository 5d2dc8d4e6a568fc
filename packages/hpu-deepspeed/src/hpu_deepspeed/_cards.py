"""What the strategies for the Trainer and for Fabric have in common: DeepSpeed, its configuration and its ranks."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch

from hpu_core import initialize_hccl
from hpu_core.parallel import HPUParallelMixin
from hpu_deepspeed import _config, _folder, _nvme, _vendor
from hpu_deepspeed._lightning import reset_seed
from hpu_deepspeed._plugin import PLUGIN

TIMEOUT: Final = timedelta(minutes=30)  # As in Lightning and torch.


class OnCards(HPUParallelMixin):
    """Goes in front of Lightning's DeepSpeedStrategy, the Trainer's or Fabric's.

    Args:
        *args: Lightning's.
        process_group_backend: "hccl".
        timeout: For how long ranks wait for each other to come; 30 minutes when not given. HCCL itself knows none.
        **kwargs: Lightning's.

    Raises:
        ImportError: DeepSpeed is too old.
        ModuleNotFoundError: DeepSpeed or the Gaudi bridge is not installed.
        RuntimeError: DeepSpeed was imported for another accelerator.
        TypeError: `timeout` is no timedelta, or a part of the configuration is of the wrong type.
        ValueError: The configuration has a value or an option that DeepSpeed does not take.
    """

    config: Any
    _timeout: timedelta | None
    # Whether `root_device` has an index at the moment, see `_with_index`.
    _indexed = False

    def __init__(
        self, *args: Any, process_group_backend: str | None = None, timeout: timedelta | None = TIMEOUT, **kwargs: Any
    ) -> None:
        _vendor.load()
        _vendor.check_release()
        if process_group_backend not in {None, "hccl"}:
            raise ValueError(f"`process_group_backend` must be 'hccl', got {process_group_backend!r}: leave it out")
        if timeout is not None and not isinstance(timeout, timedelta):
            raise TypeError(f"`timeout` must be a datetime.timedelta, got {timeout!r}")
        _config.check_source(kwargs.get("config"))
        super().__init__(*args, process_group_backend="hccl", **kwargs)
        self._timeout = timeout or TIMEOUT
        # Lightning writes into it, and the user's dict may be another strategy's as well.
        self.config = copy.deepcopy(self.config)
        _config.check(self.config)
        _config.complete(self.config)

    @property
    def root_device(self) -> torch.device:
        """`torch.device("hpu")`: a process has one card, and it has no index."""
        return torch.device("hpu", 0) if self._indexed else torch.device("hpu")

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy by all its names.

        Args:
            strategy_registry: Lightning's registry of strategies.
        """
        for name, classes in PLUGIN.strategies.items():
            strategy_registry.register(name, cls, description=cls.__name__, override=True, **classes.options)

    def _make_process_group(self) -> None:
        """Take this process's rank and have DeepSpeed make the process group."""
        reset_seed()
        _config.check_compiler(self.config)
        _nvme.check(self.config)
        _nvme.prepare(self.config)
        initialize_hccl(self.world_size, self.global_rank, self.local_rank)
        self._init_deepspeed_distributed()

    def _init_deepspeed_distributed(self) -> None:
        # Lightning passes the timeout from 2.5 on.
        if self.cluster_environment is None:
            raise RuntimeError("the strategy has no cluster environment: pass it to a Trainer or to Fabric first")
        os.environ.update(
            {
                "MASTER_ADDR": self.cluster_environment.main_address,
                "MASTER_PORT": str(self.cluster_environment.main_port),
                "RANK": str(self.global_rank),
                "WORLD_SIZE": str(self.world_size),
                "LOCAL_RANK": str(self.local_rank),
            }
        )
        port = self.cluster_environment.main_port
        _vendor.load().init_distributed("hccl", distributed_port=port, timeout=self._timeout)

    @contextmanager
    def _with_index(self) -> Iterator[None]:
        """Name the card by the index that it has in its process, which Lightning tells DeepSpeed's engine."""
        self._indexed = True
        try:
            with _vendor.card_kept():
                yield
        finally:
            self._indexed = False

    @contextmanager
    def _replacing(self, path: Any) -> Iterator[Path]:
        """Have a checkpoint written that takes its place when it is whole."""
        target = Path(os.fspath(self.broadcast(path)))
        with _folder.replacing(target, self.global_rank, self.local_rank, self.barrier) as partial:
            yield partial

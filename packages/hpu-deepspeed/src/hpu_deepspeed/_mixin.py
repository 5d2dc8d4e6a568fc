"""Shared part of the Trainer's and Fabric's strategies: configuration, process group and checkpoint directories."""

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from hpu_core import atomic_dir, hccl
from hpu_core._strategy_mixin import HPUStrategyMixin
from hpu_core.async_save import AsyncSaveMixin
from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.strategy import constructor_arguments
from hpu_deepspeed import _config, _deepspeed, _nvme
from hpu_deepspeed._lightning import DeepSpeedStrategy, FabricDeepSpeedStrategy, rank_zero_info, reset_seed
from hpu_deepspeed._plugin import PLUGIN

if TYPE_CHECKING:
    from typing_extensions import Self

    class _Strategy(HPUStrategyMixin):
        """Part of Lightning's DeepSpeedStrategy, the Trainer's and Fabric's, that is used here."""

        precision: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def optimizer_step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any: ...
        def _format_config(self) -> None: ...

else:
    _Strategy = HPUStrategyMixin


class HPUDeepSpeedMixin(AsyncSaveMixin, _Strategy):
    """Mixin for the Trainer's and Fabric's strategy; list it before Lightning's DeepSpeedStrategy."""

    config: Any
    _config_initialized: bool
    _timeout: timedelta | None
    # Whether `root_device` has an index, see `_device_index_context`.
    _has_device_index = False

    def __init__(  # noqa: PLR0913 - the arguments that are used here.
        self,
        *,
        config: Any,
        process_group_backend: str | None,
        timeout: timedelta | None,
        failure_detection: bool,
        async_save: bool = False,
        own_options: frozenset[str] = frozenset(),
        **kwargs: Any,
    ) -> None:
        _deepspeed.load()
        _deepspeed.warn_if_untested()
        self.async_save = async_save
        self.process_groups = ProcessGroupManager(process_group_backend, timeout, failure_detection)
        _config.validate_source(config)
        super().__init__(config=config, process_group_backend=self.process_groups.backend, **kwargs)
        # Set here because Lightning before 2.5 does not take it.
        self._timeout = self.process_groups.timeout
        # Lightning modifies the configuration, and the user may pass the same dict to another strategy.
        self.config = copy.deepcopy(self.config)
        if removed := _config.remove_auto(self.config):
            rank_zero_info(
                f"'auto' in the DeepSpeed config is Hugging Face's. Left out, for the Trainer, Fabric or DeepSpeed to "
                f"set: {', '.join(removed)}"
            )
        # The strategy's own options are those that it reads itself, and not DeepSpeed's engine for training.
        _config.validate(self.config, own_options)

    @property
    def root_device(self) -> torch.device:
        """`torch.device("hpu")`: each process has a single device, which has no index."""
        return torch.device("hpu", 0) if self._has_device_index else torch.device("hpu")

    @classmethod
    def from_lightning(cls, strategy: "DeepSpeedStrategy | FabricDeepSpeedStrategy") -> "Self":
        """Return a strategy with the configuration of one of Lightning's, which replaces it on HPU."""
        # All other arguments are part of `config`.
        # Lightning has set the level of DeepSpeed's logger, which the constructor would reset.
        level = _deepspeed.load().utils.logging.logger.level
        return cls(**constructor_arguments(cls, strategy), logging_level=level)

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy under all its names in Lightning's registry."""
        for name, classes in PLUGIN.strategies.items():
            strategy_registry.register(name, cls, description=cls.__name__, override=True, **classes.options)

    def prepare_device(self) -> None:
        """Load the Gaudi bridge and select the device, with the variables that DeepSpeed needs."""
        hccl.set_environment(_deepspeed.BRIDGE_ENV)
        super().prepare_device()

    def _format_config(self) -> None:
        _config.fill_defaults(self.config)
        # The Trainer's name for it, and Fabric's.
        plugin = getattr(self, "precision_plugin", None) or self.precision
        _config.resolve_precision(self.config, plugin.precision)
        if plugin.precision == "fp8":
            # Lightning does not know it.
            self.config.setdefault("bf16", {"enabled": True})
        super()._format_config()
        _config.validate_batch_sizes(self.config, self.world_size)

    def setup_distributed(self) -> None:
        """Validate the configuration as far as only ranks can, and create the process group for DeepSpeed."""
        reset_seed()
        _config.require_compiler(self.config)
        _nvme.validate(self.config)
        self._swap_dirs = _nvme.prepare(self.config)
        self.create_process_group()
        # DeepSpeed reads the rank from the environment, too.
        os.environ.update(RANK=str(self.global_rank), WORLD_SIZE=str(self.world_size), LOCAL_RANK=str(self.local_rank))
        _deepspeed.load().init_distributed("hccl", timeout=self._timeout)
        # From Lightning 2.2 on, the Trainer's strategy does this in `setup`.
        if not hasattr(self, "_init_config_if_needed") and not self._config_initialized:
            self._format_config()
            self._config_initialized = True

    _setup_distributed = setup_distributed  # Fabric's name for it.

    @contextmanager
    def _device_index_context(self) -> Iterator[None]:
        """Give `root_device` the index 0 inside the context; Lightning passes the index to DeepSpeed's engine."""
        self._has_device_index = True
        try:
            with _deepspeed.freeze_set_device():
                yield
        finally:
            self._has_device_index = False

    @contextmanager
    def _atomic_checkpoint(self, path: Any) -> Iterator[Path]:
        """Yield the directory to which the ranks write a checkpoint that replaces `path` once it is complete."""
        target = Path(os.fspath(self.broadcast(path)))
        self.finish_save()
        if self.async_save:
            partial = atomic_dir.prepare(target, self.local_rank, self.barrier)
            with _deepspeed.buffered_saves() as files:
                yield partial

            def write(_: Any) -> None:
                for file, content in files:
                    Path(file).write_bytes(content.getbuffer())

            self.write_async(write, partial, target)
            return
        with atomic_dir.atomic_dir(target, self.global_rank, self.local_rank, self.barrier) as partial:
            yield partial

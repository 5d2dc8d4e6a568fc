"""Part that is the same for the Trainer and for Fabric: start of ranks, arguments of DistributedDataParallel."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hpu_core.distributed.process_group import ProcessGroupManager
from hpu_core.distributed.strategy import HPUParallelMixin
from hpu_core.strategy import constructor_arguments

if TYPE_CHECKING:
    from typing_extensions import Self

# Intel's examples and Optimum Habana use these values throughout; they were not measured here.
DEFAULTS: Final[Mapping[str, Any]] = {
    # In MiB. Fewer collectives than with torch's default of 25 MiB amortize their fixed cost on the device.
    "bucket_cap_mb": 230,
    # Saves a copy of all gradients in memory and in every step; the README has what it costs the few programs that keep
    # gradients by reference.
    "gradient_as_bucket_view": True,
    # Finding unused parameters traverses the autograd graph and synchronizes with the device in every step.
    "find_unused_parameters": False,
}

_START_METHODS: Final = ("popen", "spawn", "fork", "forkserver")


class DDPMixin(HPUParallelMixin):
    """Mixin for strategies with DistributedDataParallel; list it first. See HPUParallelStrategy for the arguments.

    Attributes:
        multi_processing_launcher: Launcher for all start methods except "popen".
    """

    multi_processing_launcher: ClassVar[type[Any]]
    saves_alone = True

    _ddp_kwargs: dict[str, Any]
    _start_method: Any

    def __init__(  # noqa: PLR0913 - the arguments whose defaults differ here, and those of the process group.
        self,
        *,
        process_group_backend: str | None,
        timeout: timedelta | None,
        failure_detection: bool,
        start_method: str,
        bucket_cap_mb: object,
        gradient_as_bucket_view: bool | None,
        find_unused_parameters: bool | None,
        **kwargs: Any,
    ) -> None:
        if start_method not in _START_METHODS:
            raise ValueError(
                f"`start_method` must be {', '.join(map(repr, _START_METHODS[:-1]))} or {_START_METHODS[-1]!r}, got "
                f"{start_method!r}"
            )
        if bucket_cap_mb is not None and (not isinstance(bucket_cap_mb, (int, float)) or bucket_cap_mb <= 0):
            raise ValueError(f"`bucket_cap_mb` must be a positive number of MiB, got {bucket_cap_mb!r}")
        wrapper: dict[str, Any] = {
            "bucket_cap_mb": bucket_cap_mb,
            "gradient_as_bucket_view": gradient_as_bucket_view,
            "find_unused_parameters": find_unused_parameters,
        }
        given = {name: value for name, value in wrapper.items() if value is not None}
        self.process_groups = ProcessGroupManager(process_group_backend, timeout, failure_detection)
        super().__init__(
            process_group_backend=self.process_groups.backend,
            timeout=self.process_groups.timeout,
            start_method=start_method,
            **given,
            **kwargs,
        )

    @classmethod
    def from_lightning(cls, strategy: Any) -> "Self":
        """Return a strategy with the arguments of Lightning's DDPStrategy, which it replaces on HPU."""
        # No public attribute has those of DistributedDataParallel.
        return cls(**constructor_arguments(cls, strategy), **strategy._ddp_kwargs)  # noqa: SLF001 - see above.

    def prepare_device(self) -> None:
        """Load the Gaudi bridge and select the device of this rank.

        Raises:
            RuntimeError: This process launches the ranks and does not train.
        """
        cluster = self.cluster_environment
        if self._start_method != "popen" and cluster is not None and not cluster.creates_processes_externally:
            raise RuntimeError(
                f"this process launches the ranks (start_method={self._start_method!r}) and has no device of its own: "
                "create the module in `configure_model`, or in the function that Fabric launches"
            )
        super().prepare_device()

    def _configure_launcher(self) -> None:
        super()._configure_launcher()
        if self._start_method != "popen":
            self._launcher = self.multi_processing_launcher(self, start_method=self._start_method)
            self._launcher.run = self.process_groups.run

    @contextmanager
    def _wrapping(self) -> Iterator[None]:
        """Give the arguments of DistributedDataParallel their defaults inside the context, in which Lightning wraps.

        Outside of it, the strategy has the user's arguments, as Lightning's has.
        """
        arguments, self._ddp_kwargs = self._ddp_kwargs, {**DEFAULTS, **self._ddp_kwargs}
        try:
            yield
        finally:
            self._ddp_kwargs = arguments

"""What Lightning's connectors decide where Gaudi is concerned: accelerator, strategy and precision.

Lightning has one connector for the Trainer and one for Fabric, which are written alike; `Selection` goes in front of
either. Their private names are the same on Lightning 2.0 to 2.6, and are listed in `REQUIRED` and `_Connector`.
"""

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from hpu_core import discovery, frameworks

if TYPE_CHECKING:
    from hpu_core.frameworks import FrameworkName

Half = Literal["pytorch", "fabric"]

REQUIRED: Final = (
    "_check_and_init_precision",
    "_check_config_and_set_final_flags",
    "_choose_auto_accelerator",
    "_choose_strategy",
    "_init_strategy",
    "_set_parallel_devices_and_init_accelerator",
)

if TYPE_CHECKING:

    class _Connector:
        """What is used of Lightning's connectors."""

        accelerator: Any
        strategy: Any
        _accelerator_flag: Any
        _num_nodes_flag: int
        _parallel_devices: list[Any]
        _strategy_flag: Any

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def _check_and_init_precision(self) -> Any: ...
        def _check_config_and_set_final_flags(self, **flags: Any) -> None: ...
        def _choose_auto_accelerator(self) -> str: ...
        def _choose_strategy(self) -> Any: ...
        def _init_strategy(self) -> None: ...
        def _set_parallel_devices_and_init_accelerator(self) -> None: ...

else:
    _Connector = object


class Selection(_Connector):
    """Decides what concerns Gaudi, and leaves everything else to the connector that follows it in the bases."""

    _framework: ClassVar["FrameworkName"]
    _half: ClassVar[Half]

    # Why this framework's Trainer cannot train on Gaudi; decided when it is made.
    _refusal: Exception | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._refusal = _refusal(self._framework)
        if self._refusal is None:
            from hpu_core.registration import _registries

            _registries.fill(self._half)
        super().__init__(*args, **kwargs)

    def _check_config_and_set_final_flags(self, **flags: Any) -> None:
        if self._refusal is not None and "hpu" in {flags.get("accelerator"), str(flags.get("strategy"))[:3]}:
            raise self._refusal
        super()._check_config_and_set_final_flags(**flags)

    def _choose_auto_accelerator(self) -> str:
        # Before CUDA and the others: nobody puts a Gaudi card into a machine to train beside it.
        if not discovery.is_available():
            return super()._choose_auto_accelerator()
        if self._refusal is not None:
            raise self._refusal
        return "hpu"

    def _set_parallel_devices_and_init_accelerator(self) -> None:
        asked = self._accelerator_flag == "hpu" or self._is_ours(self._accelerator_flag)
        try:
            super()._set_parallel_devices_and_init_accelerator()
        except Exception as error:
            if not asked or discovery.is_available():
                raise
            raise type(error)(f"{error} `hpu-info` shows where a Gaudi card was looked for.") from error

    def _choose_strategy(self) -> Any:
        if not self._is_ours(self.accelerator):
            return super()._choose_strategy()
        return "hpu_single"

    def _is_ours(self, accelerator: object) -> bool:
        """Tell whether an accelerator is an HPUAccelerator of this connector's framework."""
        if self._refusal is not None:
            return False
        from hpu_core.accelerator import HPUAccelerator

        return isinstance(accelerator, HPUAccelerator)


class TrainerSelection(Selection):
    """The decisions for the Trainer."""

    _half = "pytorch"


class FabricSelection(Selection):
    """The decisions for Fabric."""

    _half = "fabric"


def for_trainer(connector: type, framework: "FrameworkName") -> type:
    """Return a subclass of the Trainer's connector that knows Gaudi.

    Args:
        connector: Lightning's `_AcceleratorConnector`.
        framework: Whose it is.

    Raises:
        NotImplementedError: The connector is made otherwise than on the Lightning versions that are known.
    """
    return _subclass(TrainerSelection, connector, framework)


def for_fabric(connector: type, framework: "FrameworkName") -> type:
    """Return a subclass of Fabric's connector that knows Gaudi; for the rest see `for_trainer`."""
    return _subclass(FabricSelection, connector, framework)


def _subclass(selection: type[Selection], connector: type, framework: "FrameworkName") -> type:
    missing = [name for name in REQUIRED if not callable(getattr(connector, name, None))]
    if missing:
        raise NotImplementedError(
            f"its {connector.__name__} has no {', '.join(missing)}, as it has on Lightning 2.0 to 2.6; a newer "
            "hpu-core may know it"
        )
    # By the original's name and in its module, whose place it takes: so it can be pickled, and what was pickled can be
    # loaded where nothing was replaced.
    namespace = {
        "__doc__": connector.__doc__,
        "__module__": connector.__module__,
        "__qualname__": connector.__qualname__,
        "_framework": framework,
    }
    return type(connector.__name__, (selection, connector), namespace)


def _refusal(framework: "FrameworkName") -> Exception | None:
    """Return why `framework` cannot train on Gaudi in this process, None where it can."""
    try:
        current = frameworks.current()
    except (ImportError, ValueError) as error:
        return error
    if current.name == framework:
        return None
    return ImportError(
        f"this program imports both Lightnings, and the Gaudi packages use {current.name}, while this Trainer or "
        f"Fabric is {framework}'s: import one of them only, set {frameworks.OVERRIDE}={framework}, or pass "
        "`accelerator='cpu'` here"
    )

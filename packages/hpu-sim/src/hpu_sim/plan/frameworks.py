"""Take-over of Lightning's Trainer and Fabric.

``Trainer.fit`` runs the planned steps, then the program ends. With Fabric, a step ends with that of the optimizer.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from typing import TYPE_CHECKING, Any, Final

from hpu_sim.common import post_import
from hpu_sim.plan import blocks, errors, loggers
from hpu_sim.plan.errors import PlanError
from hpu_sim.plan.session import is_compiled
from hpu_sim.prediction import bridge_kernels, zero
from hpu_sim.prediction.recording import STEPS_OF_DDP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hpu_sim.plan.session import Session
    from hpu_sim.prediction.recording import Phase

_TRAINERS: Final = ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer")
_FABRICS: Final = ("lightning.fabric.fabric", "lightning_fabric.fabric")
_EPOCHS: Final = 1000
# Callbacks of Lightning that write files, read values for people, need validation, or train on their own.
_DROPPED: Final = (
    "BatchSizeFinder",
    "Checkpoint",
    "EarlyStopping",
    "LearningRateFinder",
    "LearningRateMonitor",
    "ModelSummary",
    "ProgressBar",
    "SaveConfigCallback",
    "Timer",
)


@contextlib.contextmanager
def taken_over(session: Session) -> Iterator[None]:
    """Take over the Trainer and Fabric of either distribution of Lightning, imported now or later."""
    with contextlib.ExitStack() as stack:
        is_active = True

        def take(module: str, name: str, **functions: Callable[..., Any]) -> None:
            """Call functions in place of a class's methods, with the session and the original method first."""

            def replace() -> None:
                owner = getattr(sys.modules[module], name)
                for method, function in functions.items() if is_active else ():
                    bridge_kernels.replace(stack, owner, method, _around(getattr(owner, method), function, session))

            post_import.after_import(module, replace)

        take("deepspeed", "DeepSpeedEngine", backward=_as_part("backward"), step=_as_part("optimizer"))
        take("torchmetrics", "Metric", _wrap_update=_wrap_update)
        for each in _TRAINERS:
            take(each, "Trainer", __init__=_init_trainer, fit=_fit)
        for each in _FABRICS:
            take(
                each,
                "Fabric",
                __init__=_init,
                setup=_setup,
                setup_module=_setup_module,
                setup_optimizers=_setup_optimizers,
                _validate_launched=_launch,
            )
        try:
            yield
        finally:
            is_active = False


def _around(original: Any, function: Callable[..., Any], session: Session) -> Any:
    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return function(session, original, *args, **kwargs)

    return method


def _init(session: Session, original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    options = session.options
    kwargs.update(accelerator="hpu", devices=options.devices, num_nodes=options.nodes)
    if options.strategy is not None:
        kwargs["strategy"] = options.strategy
    if options.world_size > 1 and kwargs.get("strategy") in {"hpu_single", "single_device"}:
        kwargs.pop("strategy")
    if options.precision is not None:
        kwargs["precision"] = options.precision
    try:
        original(self, *args, **kwargs)
    except Exception as error:
        chosen = {"--strategy": options.strategy, "--precision": options.precision}
        given = " ".join(f"{name} {value}" for name, value in chosen.items() if value is not None)
        if not given:
            raise
        msg = f"`{given}` is refused: {error}"
        raise PlanError(msg, errors.location_of(error)) from error
    for logger in self.loggers:
        loggers.silence(logger)


def _init_trainer(session: Session, original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    _init(session, original, self, *args, **{**kwargs, "fast_dev_run": False})


def _launch(session: Session, original: Any, fabric: Any) -> None:
    """Launch a Fabric as `fabric run` does, for a program that does not call `launch`."""
    del session, original
    if not fabric._launched:  # noqa: SLF001 - what the replaced method checks
        fabric.launch()


def _wrap_update(session: Session, original: Any, metric: Any, update: Any) -> Any:
    """Leave out updates of metrics that need values, which training does not."""
    wrapped = original(metric, update)

    @functools.wraps(wrapped)
    def call(*args: Any, **kwargs: Any) -> None:
        try:
            wrapped(*args, **kwargs)
        except PlanError:
            session.device.error = None
            session.device.notes.add(f"The metric {type(metric).__name__} needs values, and is left out.")

    return call


def _as_part(phase: Phase) -> Callable[..., Any]:
    """Count all that a method of DeepSpeed's engine does as a part of the step, such as reductions after autograd."""

    def call(session: Session, original: Any, *args: Any, **kwargs: Any) -> Any:
        session.has_ddp = True
        with session.device.during(phase):
            return original(*args, **kwargs)

    return call


def _describe_strategy(strategy: Any, precision: Any, session: Session) -> None:
    """Record a strategy and its precision, before DeepSpeed reads its configuration."""
    recording = session.recording
    recording.strategy = getattr(strategy, "strategy_name", type(strategy).__name__)
    recording.precision = str(precision)
    if zero.is_zero(type(strategy).__name__.lower()):
        recording.strategy = zero.name_of(strategy.config)
        zero.keep_in_memory(strategy.config)
        strategy.remote_device = strategy.remote_device and "cpu"  # That of ZeRO-3's parameters may be a file.
        session.device.notes.update([zero.UNRANKED, *([zero.OFFLOADED] if zero.OFFLOAD in recording.strategy else [])])


def _fit(session: Session, original: Any, trainer: Any, model: Any, *args: Any, **kwargs: Any) -> None:
    kwargs.pop("ckpt_path", None)
    session.fits = True
    count = session.options.checkpoint
    if count and blocks.repeated(model):
        blocks.checkpoint(model, count)
    elif count:
        _once_configured(model, lambda: blocks.checkpoint(model, count))
    if session.options.precision == "fp8":
        # As a program for fp8 does.
        convert = trainer.strategy.precision_plugin.convert_modules
        _once_configured(model, lambda: convert(model, replace_layers=True))
    _prepare(trainer, model, session, original.__module__.removesuffix(".trainer.trainer"))
    original(trainer, model, *args, **kwargs)


def _once_configured(model: Any, change: Callable[[], Any]) -> None:
    """Change a model after `configure_model`, which may make its layers."""
    configure = model.configure_model

    def configure_model() -> None:
        configure()
        change()

    model.configure_model = configure_model


def _setup(session: Session, original: Any, fabric: Any, module: Any, *optimizers: Any, **kwargs: Any) -> Any:
    is_first = not session.recording.steps
    if is_first:
        _describe_strategy(fabric.strategy, fabric.strategy.precision.precision, session)
        blocks.checkpoint(module, session.options.checkpoint)
    result = original(fabric, module, *optimizers, **kwargs)
    if optimizers and is_first:
        _describe_model(module, result[0], session)
        session.start()
    return result


def _setup_module(session: Session, original: Any, fabric: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    is_first = not session.recording.steps
    if is_first:
        _describe_strategy(fabric.strategy, fabric.strategy.precision.precision, session)
    result = original(fabric, module, *args, **kwargs)
    if is_first:
        _describe_model(module, result, session)
    return result


def _setup_optimizers(session: Session, original: Any, fabric: Any, *optimizers: Any, **kwargs: Any) -> Any:
    result = original(fabric, *optimizers, **kwargs)
    if optimizers and not session.recording.steps:
        session.start()
    return result


def _describe_model(module: Any, wrapper: Any, session: Session) -> None:
    from torch.nn.parallel import DistributedDataParallel

    session.describe_model(module)
    session.has_ddp = isinstance(getattr(wrapper, "_forward_module", None), DistributedDataParallel)


def _prepare(trainer: Any, model: Any, session: Session, package: str) -> None:
    """Limit a Trainer to the planned steps, without validation, files and messages."""
    recording = session.recording
    callback_class = importlib.import_module(f"{package}.callbacks").Callback
    trainer.callbacks = [
        each
        for each in trainer.callbacks
        if not any(base.__name__ in _DROPPED and base.__module__.startswith(package) for base in type(each).__mro__)
    ]
    trainer.callbacks.append(_make_callback(callback_class, session))
    trainer.limit_val_batches = 0
    trainer.num_sanity_val_steps = 0
    # Enough epochs for the steps, of however few batches. Schedules and callbacks need a number.
    if trainer.fit_loop.max_epochs != -1:
        trainer.fit_loop.max_epochs = max(trainer.fit_loop.max_epochs or 0, _EPOCHS)
    if trainer.fit_loop.epoch_loop.max_steps > 0:
        trainer.fit_loop.epoch_loop.max_steps = max(trainer.fit_loop.epoch_loop.max_steps, STEPS_OF_DDP)
    _describe_strategy(trainer.strategy, trainer.precision, session)
    size = session.options.tensor_parallel
    if size:
        if not hasattr(trainer.strategy, "_tensor_parallel_size"):
            msg = "`--tensor-parallel` needs a program with ModelParallelStrategy or HPUModelParallelStrategy"
            raise PlanError(msg)
        trainer.strategy._tensor_parallel_size = size  # noqa: SLF001 - set before it makes its mesh
        trainer.strategy._data_parallel_size = session.options.world_size // size  # noqa: SLF001 - as above
    # Of Lightning's ModelParallelStrategy, and of hpu-fsdp's strategies.
    layers = getattr(trainer.strategy, "_tensor_parallel_size", None)
    recording.sequence_parts = getattr(trainer.strategy, "context_parallel_size", 1)
    divided = (layers if isinstance(layers, int) else 1) * recording.sequence_parts
    if divided > 1:
        recording.replicas = recording.world_size // divided
    recording.compiled = session.options.compiled or is_compiled(model)
    # A handler of Lightning would agree with other ranks on the end.
    trainer._signal_connector.register_signal_handlers = lambda: None  # noqa: SLF001 - no option has this effect
    # The session needs nothing moved back, and moving swaps tensors that the memory tracker refers to.
    trainer.strategy.teardown = lambda: None
    if session.options.batch_size is not None:
        _resize_batches(trainer, session, session.options.batch_size)


def _make_callback(base: type[Any], session: Session) -> Any:
    class PlanCallback(base):  # type: ignore[misc] # Lightning's class is Any here
        """Begins the first step of the plan, and names the batches of all."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            session.describe_model(pl_module)
            session.has_ddp = type(trainer.strategy.model).__name__ == "DistributedDataParallel"
            session.start()

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            del trainer, pl_module, batch_idx
            session.batches.train(batch)

    return PlanCallback()


def _resize_batches(trainer: Any, session: Session, size: int) -> None:
    """Change the size of every batch once it is on the device, where it has no data."""
    original = trainer.strategy.batch_to_device

    def batch_to_device(batch: Any, *args: Any, **kwargs: Any) -> Any:
        before = getattr(trainer.train_dataloader, "batch_size", None)
        return session.batches.resize(original(batch, *args, **kwargs), size, before)

    trainer.strategy.batch_to_device = batch_to_device

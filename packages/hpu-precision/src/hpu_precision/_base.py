"""What the Trainer's plugin and Fabric's have in common."""

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from os import PathLike
from typing import TYPE_CHECKING, Any

from hpu_core import frameworks
from hpu_precision import _choice
from hpu_precision._float8 import Quant
from hpu_precision._lightning import rank_zero_info, rank_zero_warn

if TYPE_CHECKING:
    import torch
    from torch.nn import Module


class HPUPrecision:
    """Chooses a precision; derive from it first, then from the framework's own base.

    A subclass says which of the framework's own plugins does what is no different on a Gaudi: Lightning's know how to
    scale losses and how to train in half precision, each version its own way.

    Args:
        precision: 32 (or "32", "32-true"), 16 (or "16", "16-mixed"), "bf16" (or "bf16-mixed"), "bf16-true" or "fp8".
            The README has a table of what each means on which release and generation.
        device: "hpu", which Lightning's own plugins for mixed precision are told, too.
        opt_level: HMP's level: "O1" runs ops by the lists, "O2" convolutions and matrix products in the lower precision
            and every other known op in float32.
        verbose: Show which op runs in which type, once for each.
        bf16_file_path: A text file with the names of the ops for the lower precision, one on each line; the default
            list if not given. With it, the lower precision is bf16 also under `precision=16`.
        fp32_file_path: A text file with the names of the ops for float32; the default list if not given.
        bf16_ops: The names of the first file, in Python.
        fp32_ops: The names of the second file, in Python.
        hmp_params: The same as a dictionary: "level", "verbose", "bf16_ops" and "fp32_ops", the latter two a path or
            names.
        scaler: Scales losses against underflow under fp16; a `torch.amp.GradScaler` for hpu if not given.

    Raises:
        ValueError: An argument is out of its range, or does not go with another one; `OpListError` for op lists.
        TypeError: An argument is of a wrong type.
        NotImplementedError: The cards, torch or Lightning do not have this precision.
    """

    def __init__(  # noqa: PLR0913 - two documented constructors in one.
        self,
        precision: int | str = "32-true",
        device: str = "hpu",
        *,
        opt_level: str = "O1",
        verbose: bool = False,
        bf16_file_path: str | PathLike[str] | None = None,
        fp32_file_path: str | PathLike[str] | None = None,
        bf16_ops: Iterable[str] | None = None,
        fp32_ops: Iterable[str] | None = None,
        hmp_params: Mapping[str, Any] | None = None,
        scaler: "torch.amp.GradScaler | None" = None,
    ) -> None:
        if device != "hpu":
            raise ValueError(f"`device` must be 'hpu', got {device!r}")
        options = _choice.Options(
            opt_level=opt_level,
            verbose=verbose,
            bf16_file_path=bf16_file_path,
            fp32_file_path=fp32_file_path,
            bf16_ops=bf16_ops,
            fp32_ops=fp32_ops,
            hmp_params=hmp_params,
            scaler=scaler,
        )
        self._choice = _choice.choose(precision, options, rank_zero_info, rank_zero_warn)
        self._inner: Any = self._frameworks_own(self._choice)
        # Lightning's type for it does not know "fp8".
        self.precision: Any = self._choice.label

    @property
    def compute_dtype(self) -> "torch.dtype":
        """What matrix products are computed in, which Lightning's ThroughputMonitor compares a throughput by.

        Under "fp8" `torch.float8_e4m3fn`, or bfloat16 on torch 2.0, which has no type of 8 bits.
        """
        return self._choice.compute_dtype

    def _frameworks_own(self, choice: _choice.Choice) -> Any:
        raise NotImplementedError

    def convert_modules(  # noqa: PLR0913, PLR0917 - the signature of the archived package.
        self,
        module: "Module",
        inference: bool = False,
        replace_layers: bool = False,
        recipe: Any = None,
        quant: Quant = True,
        fp8_data_path: str | PathLike[str] | None = None,
    ) -> "Module":
        """Prepare a module for fp8, before the Trainer or Fabric gets it.

        To train: `convert_modules(module, replace_layers=True)`. To infer: measure with `inference=True, quant=False`
        on some batches, then compute in fp8 with `inference=True`, in another process or with a fresh module.

        Args:
            module: The module.
            inference: Whether it is to infer, by Intel's neural compressor; otherwise it is to train, by Intel's
                transformer engine.
            replace_layers: To train: whether each `torch.nn.Linear` becomes the engine's. Only layers of the engine
                compute in fp8.
            recipe: To train: the engine's recipe, such as `DelayedScaling()`; None for the engine's own choice.
            quant: To infer: True to compute in fp8, False to measure for it, both with this package's configuration;
                otherwise neural compressor's configuration, as a JSON file or a dictionary.
            fp8_data_path: To infer: the folder that what is measured is written to and read from.

        Returns:
            The module to go on with.

        Raises:
            ValueError: The precision is another one, an argument does not go with another one, or the configuration
                cannot be used.
            ModuleNotFoundError: The bridge, its transformer engine or neural compressor is missing.
        """
        float8 = self._choice.float8
        if float8 is None:
            raise ValueError(f"`convert_modules` needs precision='fp8', and this plugin's is {self.precision!r}")
        if inference:
            if replace_layers or recipe is not None:
                raise ValueError("`replace_layers` and `recipe` must be left out for inference: they are for training")
            return float8.convert_for_inference(module, quant, fp8_data_path)
        if quant is not True or fp8_data_path is not None:
            raise ValueError("`quant` and `fp8_data_path` must be left out for training: they are for inference")
        return float8.convert_for_training(module, recipe, replace_layers=replace_layers)

    def convert_module(self, module: "Module") -> "Module":
        """Convert the parameters, under "bf16-true"; the framework calls it.

        Args:
            module: The module to train.
        """
        if self._choice.float8 is not None:
            self._choice.float8.check(module)
        converted: Module = self._inner.convert_module(module)
        return converted

    def tensor_init_context(self) -> AbstractContextManager[Any]:
        """Create tensors in the type of the parameters."""
        context: AbstractContextManager[Any] = self._inner.tensor_init_context()
        return context

    def module_init_context(self) -> AbstractContextManager[Any]:
        """Create modules in the type of the parameters."""
        context: AbstractContextManager[Any] = self._inner.module_init_context()
        return context

    def forward_context(self) -> AbstractContextManager[Any]:
        """Run a step of a module in this precision. In 32 bit, nothing is entered."""
        context: AbstractContextManager[Any] = self._choice.context() or self._inner.forward_context()
        return context

    def state_dict(self) -> dict[str, Any]:
        """Return the gradient scaler's state, under fp16."""
        state: dict[str, Any] = self._inner.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the gradient scaler's state."""
        self._inner.load_state_dict(state_dict)

    def teardown(self) -> None:
        """Write down what was measured for fp8, if anything."""
        if self._choice.float8 is not None:
            self._choice.float8.finish()

    def __repr__(self) -> str:
        return frameworks.describe(self)

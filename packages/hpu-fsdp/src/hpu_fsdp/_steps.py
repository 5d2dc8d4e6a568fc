"""Forward passes, which gather parameters and so wait for all ranks."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch.nn import Module

    class _Strategy:
        """Part of hpu-core's bases and of Lightning's strategies that is used here."""

        precision: Any

        def collective(self, name: str, group: Any | None = None) -> AbstractContextManager[None]: ...
        def training_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def validation_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def test_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def predict_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def setup_module(self, module: Module) -> Module: ...

else:
    _Strategy = object


class ForwardMixin(_Strategy):
    """Mixin of the Trainer's strategies that counts each step as a collective; list it before hpu-core's base."""

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `training_step`."""
        with self.collective("forward"):
            return super().training_step(*args, **kwargs)

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `validation_step`."""
        with self.collective("forward"):
            return super().validation_step(*args, **kwargs)

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `test_step`."""
        with self.collective("forward"):
            return super().test_step(*args, **kwargs)

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `predict_step`."""
        with self.collective("forward"):
            return super().predict_step(*args, **kwargs)


class FabricForwardMixin(_Strategy):
    """Mixin of Fabric's strategies that counts each forward pass as a collective; list it before hpu-core's base."""

    def setup_module(self, module: "Module") -> "Module":
        """Shard a module.

        Args:
            module: The module.
        """
        sharded = super().setup_module(module)
        # Fabric calls a module inside of this context, and has no other hook around it. FSDP2 gathers parameters in
        # hooks of the module, so a wrapper of `forward` would be too late.
        self.precision.forward_context = functools.partial(self._forward_context, self.precision)
        return sharded

    @contextmanager
    def _forward_context(self, plugin: Any) -> Iterator[None]:
        with self.collective("forward"), type(plugin).forward_context(plugin):
            yield

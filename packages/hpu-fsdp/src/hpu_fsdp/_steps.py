"""Forward passes, which gather parameters and so wait for all ranks."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    class _Strategy:
        """Part of hpu-core's bases and of Lightning's strategies that is used here."""

        def collective(self, name: str, group: Any | None = None) -> AbstractContextManager[None]: ...
        def training_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def validation_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def test_step(self, *args: Any, **kwargs: Any) -> Any: ...
        def predict_step(self, *args: Any, **kwargs: Any) -> Any: ...

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

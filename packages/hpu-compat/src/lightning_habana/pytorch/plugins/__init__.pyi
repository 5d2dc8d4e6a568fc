from typing import Any

# Names of `lightning_habana.pytorch.plugins` and below.
def __getattr__(name: str) -> Any: ...

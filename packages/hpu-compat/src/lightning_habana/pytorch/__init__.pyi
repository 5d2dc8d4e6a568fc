from typing import Any

# Names of `lightning_habana.pytorch` and below.
def __getattr__(name: str) -> Any: ...

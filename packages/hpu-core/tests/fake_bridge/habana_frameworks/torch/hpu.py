"""Fake `hpu` with one device, which `init` opens."""

opened = False
failure = ""


def init() -> None:
    """Open the device, or fail with the text of `failure`."""
    global opened  # noqa: PLW0603 - the real bridge keeps state like this, too.
    if failure:
        raise RuntimeError(failure)
    opened = True


def is_initialized() -> bool:
    """Return whether the device is open."""
    return opened


def synchronize() -> None:
    """Open the device, as the real one does."""
    init()


def device_count() -> int:
    """Return the number of devices of the machine."""
    return 8


def memory_stats() -> dict[str, int]:
    """Open the device and return its memory statistics."""
    init()
    return {"Limit": 1000, "InUse": 10, "MaxInUse": 20}


class Metric:
    """Metric of graph compilations."""

    def stats(self) -> list[tuple[str, object]]:
        """Return names and values."""
        return [("TotalNumber", 3), ("TotalTime", 70)]


def metric_global(name: str) -> "Metric | None":
    """Return the metric, None for an unknown name."""
    return Metric() if name == "graph_compilation" else None


calls: list[tuple[str, dict[str, object]]] = []


class ModuleCacher:
    """Wrapper that notes its arguments."""

    def __init__(self, max_graphs: int = 10) -> None:
        self.max_graphs = max_graphs

    def __call__(self, **options: object) -> None:
        """Note the arguments."""
        calls.append(("ModuleCacher", {"max_graphs": self.max_graphs, **options}))


def wrap_in_hpu_graph(module: object, **options: object) -> None:
    """Note the arguments."""
    calls.append(("wrap_in_hpu_graph", {"module": module, **options}))

"""One card, which `init` opens."""

opened = False
failure = ""


def init() -> None:
    """Open the card, or fail as told."""
    global opened  # noqa: PLW0603 - the real bridge keeps state like this, too.
    if failure:
        raise RuntimeError(failure)
    opened = True


def is_initialized() -> bool:
    """Tell whether the card is open."""
    return opened


def synchronize() -> None:
    """Open the card, as the real one does."""
    init()


def device_count() -> int:
    """Count the cards of the machine."""
    return 8


def get_device_name() -> str:
    """Open the card and name it."""
    init()
    return "GAUDI2"


def memory_stats() -> dict[str, int]:
    """Open the card and tell its memory figures."""
    init()
    return {"Limit": 1000, "InUse": 10, "MaxInUse": 20}


class Metric:
    """Counts of graphs."""

    def stats(self) -> list[tuple[str, object]]:
        """Tell them."""
        return [("TotalNumber", 3), ("TotalTime", 70)]


def metric_global(name: str) -> "Metric | None":
    """Give the metric, or nothing for a name that is unknown."""
    return Metric() if name == "graph_compilation" else None

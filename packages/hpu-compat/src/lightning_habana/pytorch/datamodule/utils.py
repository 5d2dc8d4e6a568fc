"""What the archived package asked of torch.distributed and of the card."""


def is_dist_avail_and_initialized() -> bool:
    """Tell whether there is a process group."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()


def get_world_size() -> int:
    """Return the number of ranks, 1 without a process group."""
    import torch.distributed as dist

    return dist.get_world_size() if is_dist_avail_and_initialized() else 1


def get_rank() -> int:
    """Return this process's rank, 0 without a process group."""
    import torch.distributed as dist

    return dist.get_rank() if is_dist_avail_and_initialized() else 0


def is_main_process() -> bool:
    """Tell whether this is rank 0."""
    return get_rank() == 0


def is_gaudi() -> bool:
    """Tell whether the cards are of the first generation. Opens none."""
    return _generation() == "GAUDI"


def is_gaudi2() -> bool:
    """Tell whether the cards are Gaudi 2. Opens none."""
    return _generation() == "GAUDI2"


def get_device_string() -> str:
    """Return the generation of the cards in lower case, such as "gaudi2". Opens none.

    Raises:
        ValueError: There is no card, or its generation is not known.
    """
    generation = _generation()
    if generation is None:
        raise ValueError("there is no Gaudi card whose generation is known: `hpu-info` shows where one was looked for")
    return generation.lower()


def _generation() -> str | None:
    from hpu_core import device_name

    return device_name()

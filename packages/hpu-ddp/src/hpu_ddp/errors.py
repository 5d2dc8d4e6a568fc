"""The error with which a training ends that has lost one of its ranks."""


class RankFailedError(RuntimeError):
    """Another rank of this training has died, failed, left or does not move; the text names it."""

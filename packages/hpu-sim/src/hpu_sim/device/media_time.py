"""Time in which the media pipes of this process prepare batches on the host, in place of a card's media engine."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass
class MediaTime:
    """Totals of all media pipes.

    Attributes:
        seconds: Time of the host.
        images: Number of images.
    """

    seconds: float = 0.0
    images: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, seconds: float, images: int) -> None:
        """Add a batch."""
        with self._lock:
            self.seconds += seconds
            self.images += images


#: The totals of this process.
total = MediaTime()

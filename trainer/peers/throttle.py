"""Keeps what a pod sends below a rate, however many of its ranks send at once."""

import threading

PAUSES_PER_SECOND = 8
"""A piece takes no longer than the time between two: so soon is an order noticed to be void."""

LARGEST_PIECE_BYTES = 16 << 20


class Throttle:
    """Any thread may call any method. ``bytes_per_second`` 0: as fast as it goes."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.piece_bytes = LARGEST_PIECE_BYTES
        """To send at once, at most."""

        if bytes_per_second:
            slow = max(1, bytes_per_second // PAUSES_PER_SECOND)
            self.piece_bytes = min(LARGEST_PIECE_BYTES, slow)

    def delay(self, num_bytes: int, now: float) -> float:
        """Seconds to wait before so many bytes are sent; they count as sent from then on."""
        if not self._bytes_per_second:
            return 0.0
        with self._lock:
            begin = max(self._free_at, now)
            self._free_at = begin + num_bytes / self._bytes_per_second
        return begin - now

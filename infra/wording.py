"""Words that several commands share."""

from collections.abc import Sequence

SHOWN = 4


def some_of(names: Sequence[str]) -> str:
    """Enough to know them by, where a group has 64 nodes."""
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")

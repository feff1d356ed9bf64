"""Which failures only tell of another rank's end, by what they say of themselves.

Each rank that waited for one that is gone gets such an error, and most of them have no
type of their own. Pure. Not covered: storage that speaks of broken connections, whose
errors are taken for echoes as well.
"""

import re

NAMES = frozenset({"DistError", "RankShouldRestart", "RestartAbort", "RestartError"})
"""Of torch.distributed and NVRx; with all that derives from them, raised for other ranks only."""

_DERIVED = re.compile(r"Dist\w*Error")
_WORDS = re.compile(
    r"connection (closed|reset|refused)|closed by peer|timed out|application timeout"
    r"|broken pipe|nccl|gloo",
    re.IGNORECASE,
)


def speaks_of_another_rank(message: str) -> bool:
    """Whether an error with this message is an echo, whatever its type."""
    return bool(_WORDS.search(message))


def is_echo(reason: str) -> bool:
    """The same of ``Type: message``, in which events give a failure."""
    name = reason.partition(":")[0]
    return name in NAMES or bool(_DERIVED.fullmatch(name)) or speaks_of_another_rank(reason)

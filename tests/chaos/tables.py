"""What the chaos runs came to, as text: the histogram, the matrix, one line for each plan."""

from collections.abc import Sequence

from tests.chaos.cells import Cell, expected, is_claimed
from tests.chaos.records import Record, histogram, refused
from trainer.faults.settings import FaultKind
from trainer.settings import RecoveryLayer

SECONDS = ("detect", "abort", "rendezvous", "restore", "first step")
_FIRST_STEP = ("productive", "lost", "stall", "unaccounted")
_BINS = {
    "detect": ("detect",),
    "abort": ("abort",),
    # A new process or pod is part of the ranks' finding each other again.
    "rendezvous": ("rendezvous", "startup", "idle"),
    "restore": ("restore",),
    "first step": _FIRST_STEP,
}


def line_for(record: Record, *, done: int, of: int) -> str:
    word = "FAILED" if record["problems"] else record["outcome"]
    line = f"{done}/{of} {record['name']} {word} in {record['seconds']:.0f} s: {record['plan']}"
    return line + "".join(f"\n    {problem}" for problem in record["problems"])


def histogram_text(records: Sequence[Record]) -> str:
    """Faults suffered and survived, by kind and layer; ``(n)`` counts refusals as documented."""
    survived, ended = histogram(records), refused(records)
    rows = [["kind", *(layer.value for layer in RecoveryLayer)]]
    for kind in FaultKind:
        cells = [Cell(kind, layer) for layer in RecoveryLayer]
        rows.append(
            [
                kind.value,
                *(
                    str(survived[cell]) if is_claimed(cell) else f"({ended[cell]})"
                    for cell in cells
                ),
            ]
        )
    return "\n".join("".join(f"{word:<20}" for word in row).rstrip() for row in rows)


def matrix_markdown(records: Sequence[Record]) -> str:
    """A row for each cell that was run: what was claimed, what was seen, how long it took."""
    head = ["kind", "layer", "saves", "claim", "caught by", *SECONDS, "result"]
    lines = [_row(head), _row(["---"] * len(head))]
    for record in records:
        cell = Cell(FaultKind(record["kinds"][0]), RecoveryLayer(record["layer"]))
        suffered = record["suffered"][0] if record["suffered"] else {}
        seconds = suffered.get("seconds", {})
        times = [
            f"{sum(seconds.get(bin_, 0.0) for bin_ in _BINS[name]):.1f}" if seconds else "-"
            for name in SECONDS
        ]
        caught = suffered.get("caught_by") or "-"
        lines.append(
            _row(
                [
                    cell.kind.value,
                    cell.layer.value,
                    record["mode"],
                    str(expected(cell)),
                    caught + (" (further out)" if suffered.get("further_out") else ""),
                    *times,
                    _result(record),
                ]
            )
        )
    return "\n".join(lines) + "\n"


def _result(record: Record) -> str:
    if record["problems"]:
        return "DIFFERENT: " + "; ".join(record["problems"])
    return "refused" if record["outcome"] == "refused" else "equal"


def _row(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "/") for word in words) + " |"

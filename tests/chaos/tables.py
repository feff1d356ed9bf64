"""What the chaos runs came to, as text: the histogram, a row a cell, one line for each plan."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from tests.chaos.cells import ALL_CELLS, TIERS, Cell, expected, is_claimed
from tests.chaos.records import Record, histogram, refused, tiers
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


def cells_markdown(records: Sequence[Record]) -> str:
    """A row for each cell: what was claimed, who caught it, and the median seconds of each part.

    Plans that went wrong are left out; a part's seconds are from the fault on.
    """
    head = ["kind", "layer", "claim", "faults", "caught by", "restored from", "saves", *SECONDS]
    lines = [_row(head), _row(["---"] * len(head))]
    good = [record for record in records if not record["problems"]]
    ended, seen = refused(records), tiers(records)
    for cell in ALL_CELLS:
        suffered = [
            (record["mode"], each)
            for record in good
            if record["layer"] == cell.layer.value and record["outcome"] != "refused"
            for each in record["suffered"]
            if each["kind"] == cell.kind.value
        ]
        caught = Counter(each["caught_by"] for _, each in suffered if each["caught_by"])
        row = [cell.kind.value, cell.layer.value, str(expected(cell))]
        row.append(str(len(suffered)) if is_claimed(cell) else f"({ended[cell]})")
        row.append(", ".join(f"{who} {count}" for who, count in caught.most_common()) or "-")
        row.append(
            ", ".join(f"{tier} {seen[cell, tier]}" for tier in TIERS if seen[cell, tier]) or "-"
        )
        row.append(", ".join(sorted({mode for mode, _ in suffered})) or "-")
        lines.append(_row(row + _medians([each["seconds"] for _, each in suffered])))
    return "\n".join(lines) + "\n"


def _medians(seconds: Sequence[Mapping[str, float]]) -> list[str]:
    measured = [each for each in seconds if each]
    if not measured:
        return ["-"] * len(SECONDS)
    return [
        f"{median(sum(each.get(bin_, 0.0) for bin_ in _BINS[name]) for each in measured):.1f}"
        for name in SECONDS
    ]


def _row(words: Sequence[str]) -> str:
    return "| " + " | ".join(word.replace("|", "/") for word in words) + " |"

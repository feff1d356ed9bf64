"""What a run's events know of checkpoints, for when none is there any more.

Not covered: a run's folder that is gone as a whole, and its events with it.
"""

from pathlib import Path

from trainer.events import parse_event


def last_committed_step(run_directory: Path) -> int | None:
    """The step of the last checkpoint that the run has committed; None if it never did.

    Raises:
        OSError: the storage fails to answer.
    """
    step = None
    for path in sorted((run_directory / "events").glob("rank-*.jsonl")):
        with path.open("rb") as lines:  # of which a long run has millions
            for line in lines:
                event = parse_event(line) if b"checkpoint_committed" in line else None
                if event and event["name"] == "checkpoint_committed":
                    step = event["step"]
    return step

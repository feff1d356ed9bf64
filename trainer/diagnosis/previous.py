"""Says, when an attempt begins, whom the one before it ended for: in the log and as an event."""

import logging
from pathlib import Path

from trainer.diagnosis.evidence import diagnose_attempt
from trainer.events import EventLog

logger = logging.getLogger(__name__)


def announce_previous(run_directory: Path, events: EventLog) -> None:
    """One rank calls it, in every attempt. Nothing that it meets is a reason to fail."""
    attempt = events.attempt - 1
    if attempt == 0:
        return
    try:
        found = diagnose_attempt(run_directory, attempt)
    except (OSError, ValueError, TypeError, KeyError) as error:
        logger.warning("Why attempt %d ended cannot be told (%r)", attempt, error)
        return
    logger.warning("Attempt %d: %s", attempt, found.line)
    events.record(
        "diagnosed",
        of_attempt=attempt,
        cause=found.cause.value,
        culprit=found.rank,
        node=found.node,
        line=found.line,
    )

"""What the doctor found: one thing that was looked at, its value, and what to do about it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """Works, or could not be looked at; a human should know."""

    ERROR = "error"
    """A deploy or a run would fail, or already does."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    level: Level
    what: str
    value: str
    remedy: str = ""
    """What to do; empty only where nothing is to be done."""


def ok(check: str, what: str, value: object) -> Finding:
    return Finding(check, Level.OK, what, str(value))


def warning(check: str, what: str, value: object, remedy: str) -> Finding:
    return Finding(check, Level.WARNING, what, str(value), remedy)


def error(check: str, what: str, value: object, remedy: str) -> Finding:
    return Finding(check, Level.ERROR, what, str(value), remedy)


def softened(findings: Iterable[Finding], why: str) -> list[Finding]:
    """With warnings in the place of errors, for ``why``: no deploy would fail of them."""
    return [
        replace(each, level=Level.WARNING, value=f"{each.value}; {why}")
        if each.level is Level.ERROR
        else each
        for each in findings
    ]


def has_errors(findings: Iterable[Finding]) -> bool:
    return any(finding.level is Level.ERROR for finding in findings)

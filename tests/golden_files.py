"""Whole renderings, compared with files that are committed and reviewed.

`UPDATE_GOLDEN=1 make test` rewrites them; read the diff before committing it.
"""

import difflib
import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).resolve().parent / "golden"
MOST_LINES_SHOWN = 40


def assert_golden(path: Path | str, text: str) -> None:
    """``text`` is what the golden file holds; ``path`` is relative to ``tests/golden``."""
    file = GOLDEN / path
    if os.environ.get("UPDATE_GOLDEN") == "1":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return
    golden = file.read_text() if file.exists() else ""
    if golden == text:
        return
    difference = list(
        difflib.unified_diff(
            golden.splitlines(), text.splitlines(), str(file), "rendered now", lineterm=""
        )
    )
    shown = "\n".join(difference[:MOST_LINES_SHOWN])
    pytest.fail(f"rendered text is not the golden file; UPDATE_GOLDEN=1 rewrites it\n{shown}")

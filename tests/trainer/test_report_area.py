"""The worker's answer arrives whole or not at all, and never a second time."""

import gc
import mmap
from pathlib import Path
from typing import Any

import pytest

from trainer.checkpoint.report_area import ReportArea, write_report, write_to


def test_a_report_comes_back_as_it_was_left() -> None:
    area = ReportArea(2000)
    assert area.read() is None
    report = {"files": ["__0_0.distcp"] * 1000}
    write_report(area.path, report)
    assert area.read() == report


def test_one_that_is_cleared_holds_none() -> None:
    area = ReportArea(1)
    write_report(area.path, "written")
    area.clear()
    assert area.read() is None


def test_a_writer_that_dies_over_its_report_leaves_none() -> None:
    class Dying(mmap.mmap):
        """Stands for a process killed after its first write."""

        def __setitem__(self, where: Any, content: Any) -> None:
            super().__setitem__(where, content)
            raise KeyboardInterrupt

    area = ReportArea(1)
    with Path(area.path).open("r+b") as file, pytest.raises(KeyboardInterrupt):
        write_to(Dying(file.fileno(), 0), "written")
    assert area.read() is None


def test_the_area_goes_with_the_attempt_that_made_it() -> None:
    area = ReportArea(1)
    path = area.path
    del area
    gc.collect()
    with pytest.raises(OSError, match="No such file"):
        write_report(path, "written")

"""Environment of every test, and how pytest's processes share the tests.

Node comes from the virtual environment, and CDK leaves out its minute-long validation.
Set here, at import, because both are read when aws_cdk is first imported.
"""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
# Only this exact word turns it off. `cdk synth` and `python app.py` leave it on.
os.environ["CDK_VALIDATION"] = "false"

TAKE_MINUTES = ("test_a_run_killed_at_any_point_", "test_thousands_of_mutated_files_")
LONGEST = ("slow", "distributed")
START_RANKS = (
    "tests/chaos/test_real_plan.py",
    "tests/trainer/",
    "tests/test_rehearsal.py",
    "tests/test_stop_and_resume.py",
    "tests/workloads/test_lost_pod.py",
    "tests/workloads/test_node_faults.py",
    "tests/workloads/test_rehears",
)


class ByFile(LoadScopeScheduling):  # type: ignore[misc]
    """A file's tests stay together, with the fixtures that they share, save those of minutes.

    Those that start ranks all stay together, or the ranks of two tests would share the
    processors and find each other too slow.
    """

    def _split_scope(self, nodeid: str) -> str:
        file, test = nodeid.split("::", maxsplit=1)
        if test.startswith(TAKE_MINUTES):
            return nodeid
        return "ranks" if file.startswith(START_RANKS) else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest first, or one process would be at them when all others have ended."""
    if hasattr(config, "workerinput"):  # where tests are shared
        items.sort(key=lambda item: [item.get_closest_marker(m) is None for m in LONGEST])

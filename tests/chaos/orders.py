"""What a plan's process is ordered to run: the rendered Job, or why the settings refuse it.

Rendering starts Node, and takes longer than some plans do. So Jobs are rendered by the
driver, kept by the code that made them and the NVRx version that they are for, and can be
carried to a computer without Node.
"""

import json
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

from deployment import DeploymentError
from tests.chaos.plans import Plan
from tests.chaos.records import code_digest
from tests.chaos.runs import TRAINER, digest_of, installed_nvrx, render
from workloads.rehearse import RunToRehearse


class Orders:
    """``folder`` keeps what was rendered; ``nvrx`` is the version that Jobs are for."""

    def __init__(self, folder: Path, nvrx: str | None = None) -> None:
        self._nvrx = nvrx or installed_nvrx()
        code = f"{code_digest()}-{digest_of(TRAINER)}"
        self._folder = folder.resolve() / f"{code}-nvrx-{self._nvrx}"

    def of(self, plan: Plan) -> dict[str, Any]:
        """The order as JSON takes it: ``plan``, and ``run`` or ``refused``."""
        path = self._folder / f"{plan.name}.json"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part")
            draft.write_text(json.dumps(self._made(plan)))
            draft.replace(path)
        order: dict[str, Any] = json.loads(path.read_text())
        return order

    def _made(self, plan: Plan) -> dict[str, Any]:
        order: dict[str, Any] = {"plan": asdict(plan)}
        try:
            run = render(plan, nvrx=self._nvrx)
        except DeploymentError as error:
            return order | {"refused": str(error)}
        return order | {"run": asdict(run) | {"run_directory": str(run.run_directory)}}


def run_from(values: dict[str, Any]) -> RunToRehearse:
    """The ``run`` of an order."""
    return RunToRehearse(**values | {"run_directory": PurePosixPath(values["run_directory"])})

"""One deployment file in, one checked Deployment out: what the cluster is and what runs on it.

The only module that infra, workloads and the command lines get their settings
from. A file that cannot work is refused here, before anything is rendered.
"""

from pathlib import Path
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, ValidationError, model_validator

from infra.node_groups import NodeGroup
from infra.settings import InfraSettings
from trainer.faults.settings import PASSED_OVER
from trainer.refusals import explain
from trainer.settings import (
    RecoveryLayer,
    SettingsError,
    TrainerSettings,
    with_changes,
)
from workloads.launcher import why_no_spares
from workloads.settings import RunName, RunSettings

FSX_MOUNT = Path("/fsx")

# Of the trainer's settings, those that follow from the run's name and the instance type.
SET_FOR_EACH_RUN = frozenset({"run_directory", "device"})


class DeploymentError(ValueError):
    """A deployment file that cannot be used; one line for each thing that is wrong."""


class _RepeatedKeyError(yaml.YAMLError):
    """Two values under one key, of which YAML would silently take the last."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice. What ``<<`` merges in may still be overridden."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not where values are made, because there the merged keys stand beside the own.
        node = super().compose_mapping_node(anchor)
        first_lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            name, line = (key.tag, str(key.value)), key.start_mark.line + 1
            if name in first_lines:
                raise _RepeatedKeyError(
                    f"line {line}: key {key.value!r} stands in line {first_lines[name]} already; "
                    "remove one of the two"
                )
            if isinstance(key, yaml.ScalarNode):
                first_lines[name] = line
        return node


class Deployment(InfraSettings):
    trainer: dict[str, Any]
    """Settings that every run starts from; ``run_directory`` and ``device`` are set for each."""

    runs: Annotated[dict[RunName, RunSettings], Field(min_length=1)]

    @model_validator(mode="after")
    def _runs_fit_the_cluster(self) -> Self:
        known = ", ".join(self.node_groups)
        for name, run in self.runs.items():
            if run.node_group is None and len(self.node_groups) > 1:
                raise ValueError(
                    f"runs.{name}.node_group is missing and there are several groups; "
                    f"add one of: {known}"
                )
            if run.node_group is not None and run.node_group not in self.node_groups:
                raise ValueError(
                    f"runs.{name}.node_group {run.node_group!r} is no node group; "
                    f"take one of: {known}"
                )
            group, has = self.group_name(name), self.nodes_of(name).num_nodes
            needs = run.num_nodes + run.num_spare_nodes
            if needs > has:
                spare = f" and num_spare_nodes {run.num_spare_nodes}" if run.num_spare_nodes else ""
                raise ValueError(
                    f"runs.{name}.num_nodes is {run.num_nodes}{spare} but node group {group!r} has "
                    f"{has}; lower it or raise node_groups.{group}.num_nodes"
                )
        return self

    @model_validator(mode="after")
    def _every_run_can_train(self) -> Self:
        for name, run in self.runs.items():
            layer = self.trainer_settings(name).recovery.layer
            problem = why_no_spares(layer, self.image.nvrx_version)
            if run.num_spare_nodes and problem:
                raise ValueError(
                    f"runs.{name}.num_spare_nodes is {run.num_spare_nodes} but {problem}; or take 0"
                )
        return self

    def group_name(self, run_name: str) -> str:
        """The node group that ``run_name`` trains on: its own choice, or the only one."""
        return self.runs[run_name].node_group or next(iter(self.node_groups))

    def nodes_of(self, run_name: str) -> NodeGroup:
        return self.node_groups[self.group_name(run_name)]

    def trainer_settings(self, run_name: str) -> TrainerSettings:
        """What the trainer of ``run_name`` is told, complete.

        Raises:
            ValueError: the run's settings are wrong; the message has a line for each problem.
        """
        run = self.runs[run_name]
        if chosen := SET_FOR_EACH_RUN & {*self.trainer, *run.change}:
            raise ValueError(
                f"runs.{run_name}: {', '.join(sorted(chosen))} cannot be chosen, there or in "
                "trainer, because it follows from the run's name and the instance type; remove it"
            )
        values = {
            **self.trainer,
            "run_directory": str(FSX_MOUNT / "runs" / f"{run_name}-{run.id}"),
            "device": self.nodes_of(run_name).hardware.device,
        }
        try:
            settings = TrainerSettings.model_validate(with_changes(values, run.change))
        except SettingsError as error:
            raise ValueError(f"runs.{run_name}: {error}") from error
        except ValidationError as error:
            raise ValueError(_in_run(run_name, error)) from error
        world_size = run.num_nodes * self.nodes_of(run_name).hardware.workers_per_node
        if settings.data.global_batch_size < world_size:  # ranks' parts may differ, not be empty
            raise ValueError(
                f"runs.{run_name}: data.global_batch_size {settings.data.global_batch_size} "
                f"leaves some of {world_size} ranks without a sequence; take at least {world_size}"
            )
        fatal = sorted(settings.faults.kinds_to_come() - PASSED_OVER)
        if settings.recovery.layer is RecoveryLayer.NONE and fatal:
            raise ValueError(
                f"runs.{run_name}: faults of kind {fatal[0]} are planned but recovery.layer "
                "is 'none', so the first fault would end it; choose another layer"
            )
        return settings


def load(path: Path) -> Deployment:
    """Read and check one deployment file.

    Raises:
        DeploymentError: the file cannot be read, or is not a deployment that can work.
    """
    try:
        # A safe loader still: it makes nothing but text, numbers, dates, lists and mappings.
        values = yaml.load(path.read_bytes(), Loader=_Loader)
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read ({error.strerror})") from error
    except _RepeatedKeyError as error:
        raise DeploymentError(f"{path}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # The latter two: a date that does not exist, brackets a thousand deep.
        raise DeploymentError(f"{path}: not YAML ({_one_line(error)})") from error
    if not isinstance(values, dict):
        raise DeploymentError(f"{path}: must hold a mapping of settings")
    try:
        return Deployment.model_validate(values)
    except ValidationError as error:
        raise DeploymentError("\n".join(explain(error, Deployment, source=str(path)))) from error


def _in_run(run_name: str, error: ValidationError) -> str:
    return "; ".join(explain(error, TrainerSettings, source=f"runs.{run_name}"))


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())

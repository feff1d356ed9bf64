"""The command line says what the run needs and nothing that its launcher does not know."""

import importlib
import importlib.metadata
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import pytest

from trainer.settings import RecoveryLayer, TrainerSettings
from trainer.timeouts import derive_timeouts
from workloads.launcher import (
    FT_LAUNCHER_OPTIONS,
    container_command,
    launcher_environment,
    why_no_spares,
)

LAUNCHER = 6
"""Where the launcher stands in the command: after the entry point, its settings and the dashes."""


def settings_for(layer: RecoveryLayer, *, device: str = "cpu") -> TrainerSettings:
    return TrainerSettings.model_validate(
        {
            "run_directory": "/fsx/runs/demo-1",
            "device": device,
            "max_steps": 100,
            "model": {"preset": "tiny"},
            "data": {"sequence_length": 8, "global_batch_size": 8},
            "checkpoint": {"interval_steps": 10},
            "recovery": {"layer": layer},
            "timeouts": {"hang_seconds": 8, "startup_seconds": 120, "drain_seconds": 20},
        }
    )


def command_for(
    settings: TrainerSettings, nvrx_version: str = "0.4.1", *, num_spare_nodes: int = 0
) -> tuple[str, ...]:
    return container_command(
        settings,
        nvrx_version=nvrx_version,
        num_nodes=2,
        num_spare_nodes=num_spare_nodes,
        workers_per_node=8,
        rendezvous_host="demo-0.demo",
        rendezvous_id="demo",
        timeouts=derive_timeouts(settings.timeouts, device=settings.device),
    )


def test_in_job_recovery_on_a_cpu_with_nvrx_0_6_is_this_command() -> None:
    settings = settings_for(RecoveryLayer.IN_JOB)
    assert command_for(settings, "0.6.0") == (
        *("python", "-m", "trainer.entry", "--settings", "/etc/steadfast/settings.json", "--"),
        "ft_launcher",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=demo-0.demo:29500",
        "--rdzv-id=demo",
        "--rdzv-conf=join_timeout=1800,read_timeout=600,store_connect_wait_seconds=600,"
        "is_host={is_host}",
        "--local-addr=$(POD_IP)",
        "--max-restarts=1000000",
        "--monitor-interval=0.2",
        "--term-timeout=50",
        "--workers-stop-timeout=1",
        "--ft-rank-heartbeat-timeout=18",
        "--ft-initial-rank-heartbeat-timeout=120",
        "--ft-gpu-memory-poll-interval=0.25",
        "--ft-enable-nic-healthcheck=false",
        "--ft-numa-bind-strict=false",
        *("-m", "trainer.train", "--settings", "/etc/steadfast/settings.json"),
    )


@pytest.mark.parametrize("layer", ["none", "pod", "in_process"])
def test_layers_other_than_in_job_use_torchrun_without_restarts(layer: RecoveryLayer) -> None:
    command = command_for(settings_for(layer))
    assert command[LAUNCHER] == "torchrun"
    assert "--max-restarts=0" in command
    assert not [argument for argument in command if argument.startswith("--ft-")]


def test_in_process_inside_the_launcher_has_the_command_of_in_job_recovery() -> None:
    layered, in_job = settings_for(RecoveryLayer.LAYERED), settings_for(RecoveryLayer.IN_JOB)
    assert command_for(layered) == command_for(in_job)
    timeouts = derive_timeouts(layered.timeouts, device="cpu")
    assert timeouts.hard_seconds < timeouts.heartbeat_seconds  # in process has its turn first
    assert launcher_environment(layered, timeouts) == {}


def test_spare_nodes_are_those_beyond_the_least() -> None:
    command = command_for(settings_for(RecoveryLayer.IN_JOB), "0.7.0", num_spare_nodes=1)
    assert "--nnodes=2:3" in command


@pytest.mark.parametrize(
    ("layer", "nvrx_version", "reason"),
    [
        ("in_job", "0.7.0", ""),
        ("layered", "0.6.0", ""),
        ("in_job", "0.4.1", "0.4.1 would let them train at once; take 0.6.0 or 0.7.0"),
        ("pod", "0.7.0", "recovery.layer pod replaces pods; take in_job or layered"),
    ],
)
def test_spare_nodes_need_a_launcher_that_keeps_them(
    layer: str, nvrx_version: str, reason: str
) -> None:
    assert why_no_spares(RecoveryLayer(layer), nvrx_version).endswith(reason)
    assert bool(why_no_spares(RecoveryLayer(layer), nvrx_version)) == bool(reason)


def test_the_restart_policy_is_named_to_nvrx_0_4_only() -> None:
    settings = settings_for(RecoveryLayer.IN_JOB)
    naming_it = [
        version
        for version in FT_LAUNCHER_OPTIONS
        if "--ft-restart-policy=any-failed" in command_for(settings, version)
    ]
    assert naming_it == ["0.4.1"]


def test_checks_of_nics_and_numa_stay_on_where_there_are_gpus() -> None:
    command = command_for(settings_for(RecoveryLayer.IN_JOB, device="cuda"), "0.7.0")
    assert not [argument for argument in command if "nic" in argument or "numa" in argument]


@pytest.mark.parametrize("version", FT_LAUNCHER_OPTIONS)
def test_an_option_that_a_release_does_not_know_is_left_out(version: str) -> None:
    command = command_for(settings_for(RecoveryLayer.IN_JOB), version)
    own = command[LAUNCHER + 8 : command.index("-m", LAUNCHER)]
    assert {argument.lstrip("-").partition("=")[0] for argument in own} == set(
        FT_LAUNCHER_OPTIONS[version]
    )


def test_torchrun_is_told_to_let_ranks_drain_and_ft_launcher_has_an_option_for_it() -> None:
    pod, in_job = settings_for(RecoveryLayer.POD), settings_for(RecoveryLayer.IN_JOB)
    timeouts = derive_timeouts(pod.timeouts, device="cpu")
    assert launcher_environment(pod, timeouts) == {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "50"}
    assert launcher_environment(in_job, timeouts) == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_installed_ft_launcher_accepts_every_option(device: str) -> None:
    launcher = importlib.import_module("nvidia_resiliency_ext.fault_tolerance.launcher")
    version = importlib.metadata.version("nvidia-resiliency-ext")
    settings = settings_for(RecoveryLayer.IN_JOB, device=device)
    parsed = parse(launcher.get_args_parser(), command_for(settings, version))
    assert parsed.term_timeout == 50.0
    assert parsed.ft_rank_heartbeat_timeout == 18.0


def test_torchrun_accepts_every_option() -> None:
    run = importlib.import_module("torch.distributed.run")
    assert parse(run.get_args_parser(), command_for(settings_for(RecoveryLayer.POD))).nnodes == "2"


def parse(parser: ArgumentParser, command: tuple[str, ...]) -> Any:
    parsed = parser.parse_args(command[LAUNCHER + 1 :])
    assert parsed.module
    assert parsed.training_script == "trainer.train"
    assert [Path(parsed.training_script_args[1]).name] == ["settings.json"]
    return parsed

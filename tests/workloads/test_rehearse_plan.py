"""A rendered Job read and planned as processes, without starting any."""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from tests.workloads.rehearsal_jobs import SETTINGS_PATH, documents, places
from workloads.rehearsal.job import RehearsalError, read_job
from workloads.rehearsal.pod_plan import (
    PodPlan,
    describe,
    expand,
    local_path,
    plan_pod,
)


def plan(
    tmp_path: Path, *command: str, index: int = 0, replacement: int = 0, **options: Any
) -> PodPlan:
    job = read_job(documents(*command, completions=2, **options))
    return plan_pod(job, places(tmp_path), index=index, replacement=replacement)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)/x", "1/x"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(UNKNOWN)", "$(UNKNOWN)"),
        ("$A ${A} $(A", "$A ${A} $(A"),
    ],
)
def test_only_variables_that_are_set_are_expanded(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_a_variable_sees_those_before_it_and_the_command_sees_all(tmp_path: Path) -> None:
    env = [
        {"name": "EARLY", "value": "$(LATE) $(JOB_COMPLETION_INDEX)"},
        {"name": "LATE", "value": "late"},
        {"name": "AFTER", "value": "$(LATE)r"},
    ]
    pod = plan(tmp_path, "python", "$(LATE)", "$(JOB_COMPLETION_INDEX)", env=env, index=1)
    assert pod.environment["EARLY"] == "$(LATE) $(JOB_COMPLETION_INDEX)"
    assert pod.environment["AFTER"] == "later"
    assert pod.arguments == ("/venv/bin/python", "late", "1")
    assert pod.environment["JOB_COMPLETION_INDEX"] == "1"


def test_fields_of_the_pod_become_those_of_its_process(tmp_path: Path) -> None:
    fields = {"POD_IP": "status.podIP", "POD_NAME": "metadata.name", "NS": "metadata.namespace"}
    env = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in fields.items()
    ]
    pod = plan(tmp_path, "python", "$(POD_IP)", env=env, index=1, replacement=2)
    assert pod.arguments[1] == "127.0.0.2"
    assert pod.environment["POD_NAME"] == "demo-1-r2"
    assert pod.environment["NS"] == "training"


def test_an_optional_secret_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    secret = {"secretKeyRef": {"name": "hf", "key": "token", "optional": True}}
    job = read_job(documents("python", env=[{"name": "HF_TOKEN", "valueFrom": secret}]))
    pod = plan_pod(job, places(tmp_path), index=0, replacement=0)
    assert "HF_TOKEN" not in pod.environment
    said = describe(job, places(tmp_path), backoff_factor=0.1)
    assert [sentence for sentence in said if "HF_TOKEN" in sentence]


def test_a_required_secret_is_refused_by_the_variable_it_fills() -> None:
    secret = {"secretKeyRef": {"name": "hf", "key": "token"}}
    with pytest.raises(RehearsalError, match="HF_TOKEN"):
        read_job(documents("python", env=[{"name": "HF_TOKEN", "valueFrom": secret}]))


def test_mount_paths_become_folders_wherever_a_path_begins(tmp_path: Path) -> None:
    fsx = tmp_path / "out/run/volumes/fsx"
    pod = plan(
        tmp_path, "python", "--data=/fsx/data", "a:/fsx", "/fsx2", "/data/fsx", "s3://b/fsx", "/fsx"
    )
    assert pod.arguments[1:] == (
        f"--data={fsx}/data",
        f"a:{fsx}",
        "/fsx2",
        "/data/fsx",
        "s3://b/fsx",
        f"{fsx}",
    )


def test_a_path_behind_a_shell_variable_is_left_alone(tmp_path: Path) -> None:
    assert plan(tmp_path, "sh", "-c", "ls ${ROOT}/fsx").arguments[2] == "ls ${ROOT}/fsx"


def test_the_settings_file_is_written_for_each_pod_with_local_paths(tmp_path: Path) -> None:
    settings = '{"run_directory": "/fsx/runs/a", "max_steps": 29500}'
    pod = plan(tmp_path, "python", "--settings", SETTINGS_PATH, settings=settings, index=1)
    ((path, content),) = pod.files
    assert path == tmp_path / "out/run/pods/demo-1-r0/settings/settings.json"
    assert pod.arguments[2] == str(path)
    assert f'"run_directory": "{tmp_path}/out/run/volumes/fsx/runs/a"' in content


def test_a_number_in_the_settings_that_equals_the_port_stays(tmp_path: Path) -> None:
    settings = '{"max_steps": 29500, "store": "demo-0.demo:29500"}'
    ((_, content),) = plan(tmp_path, "python", settings=settings).files
    assert content == '{"max_steps": 29500, "store": "127.0.0.1:23456"}'


def test_temporary_files_of_pods_do_not_meet(tmp_path: Path) -> None:
    first, second = (
        plan(tmp_path, "python", env=[{"name": "F", "value": "/tmp/code"}], index=index)
        for index in (0, 1)
    )
    assert first.environment["F"] == f"{first.environment['TMPDIR']}/code"
    assert first.environment["F"] != second.environment["F"]
    assert first.scratch in Path(first.environment["F"]).parents


def test_shared_memory_stays_that_of_this_computer(tmp_path: Path) -> None:
    assert plan(tmp_path, "python", "/dev/shm/x").arguments[1] == "/dev/shm/x"


@pytest.mark.parametrize(
    "name",
    ["demo-2.demo", "demo-2.demo.training", "demo-2.demo.training.svc.cluster.local"],
)
def test_names_in_dns_become_loopback_addresses_one_a_pod(tmp_path: Path, name: str) -> None:
    pod = plan(tmp_path, "python", f"--endpoint={name}:29500")
    assert pod.arguments[1] == "--endpoint=127.0.0.3:23456"


@pytest.mark.parametrize("name", ["demo-0.demo.com", "my-demo-0.demo", "demo-0.demos", "demo-0"])
def test_names_of_others_in_dns_are_left_alone(tmp_path: Path, name: str) -> None:
    assert plan(tmp_path, "python", name).arguments[1] == name


def test_a_port_is_replaced_only_as_a_whole_number(tmp_path: Path) -> None:
    env = [{"name": "MASTER_PORT", "value": "29500"}, {"name": "N", "value": "295001 1.29500"}]
    environment = plan(tmp_path, "python", env=env).environment
    assert environment["MASTER_PORT"] == "23456"
    assert environment["N"] == "295001 1.29500"


def test_the_manifest_overrides_the_base_environment(tmp_path: Path) -> None:
    job = read_job(documents("python", env=[{"name": "HOME", "value": "/fsx"}]))
    here = places(tmp_path, base_environment={"HOME": "/root", "LANG": "C"})
    environment = plan_pod(job, here, index=0, replacement=0).environment
    assert environment["HOME"] == str(tmp_path / "out/run/volumes/fsx")
    assert environment["LANG"] == "C"


def test_the_run_directory_is_found_on_this_computer(tmp_path: Path) -> None:
    job = read_job(documents("python"))
    found = local_path(job, places(tmp_path), PurePosixPath("/fsx/runs/a-1"))
    assert found == tmp_path / "out/run/volumes/fsx/runs/a-1"


def test_what_would_change_the_outcome_is_refused_by_name() -> None:
    rendered = documents("python")
    rendered[2]["spec"]["template"]["spec"]["initContainers"] = [{"name": "check"}]
    with pytest.raises(RehearsalError, match="initContainers of the pod is not rehearsed"):
        read_job(rendered)


def test_a_volume_of_the_node_is_refused_by_name() -> None:
    rendered = documents("python")
    volumes = rendered[2]["spec"]["template"]["spec"]["volumes"]
    volumes[2] = {"name": "fsx", "hostPath": {"path": "/mnt"}}
    with pytest.raises(RehearsalError, match="volume 'fsx' is hostPath"):
        read_job(rendered)


def test_an_image_without_a_command_is_refused() -> None:
    with pytest.raises(RehearsalError, match="no command"):
        read_job(documents())

"""Editors and the program agree on what a deployment file may hold."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden_files import assert_golden
from tests.workloads.conftest import DEPLOYMENTS
from workloads.schema import deployment_schema, schema_text

# Untyped, and there because kubernetes-validate needs it.
jsonschema: Any = importlib.import_module("jsonschema")


def test_the_exported_schema_is_up_to_date() -> None:
    assert_golden(DEPLOYMENTS[0].with_name("schema.json"), schema_text())


@pytest.mark.parametrize("path", DEPLOYMENTS, ids=lambda path: path.stem)
def test_a_shipped_deployment_names_the_schema_and_satisfies_it(path: Path) -> None:
    assert path.read_text().startswith("# yaml-language-server: $schema=schema.json\n")
    assert complaints(yaml.safe_load(path.read_text())) == []


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ((), "nmae"),
        (("node_groups", "p5"), "num_node"),
        (("trainer",), "max_step"),
        (("trainer",), "run_directory"),
        (("trainer", "checkpoint"), "intervall_steps"),
        (("runs", "in-job"), "nodes"),
        (("runs", "in-job", "change"), "checkpoint.interval"),
        (("runs",), "In_Job"),
    ],
)
def test_a_key_that_the_program_refuses_is_marked_in_the_editor(
    where: tuple[str, ...], key: str
) -> None:
    values = yaml.safe_load(next(p for p in DEPLOYMENTS if p.stem == "p5").read_text())
    place = values
    for part in where:
        place = place[part]
    place[key] = {"num_nodes": 1} if where == ("runs",) else 1
    assert any(key in complaint for complaint in complaints(values))


def complaints(values: Any) -> list[str]:
    validator = jsonschema.Draft202012Validator(deployment_schema())
    return [error.message for error in validator.iter_errors(values)]

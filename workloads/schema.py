"""The JSON Schema of a deployment file, from which editors complete and check it.

``trainer`` and ``change`` are plain mappings to the program, which checks them
run by run, so their keys are spelled out here: nested for the one, dotted for
the other. Not covered: whatever depends on two values; ``deployment.load`` says it.
"""

import copy
import json
from typing import Any

from deployment import SET_FOR_EACH_RUN, Deployment
from infra.hardware import CATALOG
from trainer.settings import TrainerSettings

Schema = dict[str, Any]


def deployment_schema() -> Schema:
    """The schema of a whole deployment file."""
    schema = Deployment.model_json_schema()
    trainer = TrainerSettings.model_json_schema()
    definitions: Schema = trainer.pop("$defs")
    for definition in (trainer, *definitions.values()):
        # What ``trainer`` leaves out, a run may change.
        definition.pop("required", None)
    for key in SET_FOR_EACH_RUN:
        del trainer["properties"][key]

    trainer["description"] = schema["properties"]["trainer"]["description"]
    schema["properties"]["trainer"] = trainer
    schema["$defs"] |= definitions
    change = schema["$defs"]["RunSettings"]["properties"]["change"]
    change["properties"] = _dotted(trainer["properties"], definitions)
    change["additionalProperties"] = False
    schema["$defs"]["NodeGroup"]["properties"]["instance_type"]["enum"] = list(CATALOG)
    for key in ("runs", "node_groups"):
        _name_the_entries(schema["properties"][key])
    return schema


def schema_text() -> str:
    return json.dumps(deployment_schema(), indent=2, sort_keys=True) + "\n"


def _dotted(properties: Schema, definitions: Schema, prefix: str = "") -> Schema:
    """Every key of ``properties``, and those inside them behind a dot."""
    result: Schema = {}
    for key, declared in properties.items():
        result[prefix + key] = copy.deepcopy(declared)
        inner = definitions.get(str(declared.get("$ref", "")).rpartition("/")[2], {})
        if "properties" in inner:
            result |= _dotted(inner["properties"], definitions, f"{prefix}{key}.")
    return result


def _name_the_entries(mapping: Schema) -> None:
    """Refuse an entry whose name does not match; by itself ``patternProperties`` lets it pass."""
    ((pattern, entry),) = mapping.pop("patternProperties").items()
    mapping["propertyNames"]["pattern"] = pattern
    mapping["additionalProperties"] = entry

"""Says what is wrong with settings: one line a problem, with key, value and remedy."""

import difflib
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError


def explain(error: ValidationError, model: type[BaseModel], *, source: str) -> list[str]:
    """One line for each problem: source, dotted key, what is wrong, the value, the remedy."""
    return [_explain_one(problem, model, source) for problem in error.errors()]


def _explain_one(problem: Mapping[str, Any], model: type[BaseModel], source: str) -> str:
    location: tuple[str | int, ...] = problem["loc"]
    dotted = ".".join(str(part) for part in location)
    where = f"{source}: {dotted}: " if dotted else f"{source}: "
    match problem["type"]:
        case "extra_forbidden":
            known = _known_keys(model, location[:-1])
            nearest = difflib.get_close_matches(str(location[-1]), known, n=1)
            remedy = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
            return f"{where}unknown setting {location[-1]!r}; {remedy}"
        case "missing":
            return f"{where}is missing; add it"
        case "value_error":
            return f"{where}{problem['ctx']['error']}"
        case _:
            message = problem["msg"][0].lower() + problem["msg"][1:]
            remedy = _remedy(problem["type"], problem["input"])
            return f"{where}{message}, got {problem['input']!r}{remedy}"


def _remedy(problem_type: str, value: Any) -> str:
    match problem_type:
        case "int_type":
            return "; give a whole number, without quotes"
        # A version 1.30 or an account 0123 has lost a digit by now, so it cannot be converted.
        case "string_type" if not isinstance(value, dict | list | None):
            return "; put it in quotes"
        case _:
            return ""


def _known_keys(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The fields declared at ``location``, through nested models, maps and tagged unions."""
    current: list[type[BaseModel]] = [model]
    for part in map(str, location):
        declared = [m.model_fields[part] for m in current if part in m.model_fields]
        if declared:
            current = _models_in(declared[0].annotation)
        else:  # the name of a map's entry, or the tag of a union's member
            current = [m for m in current if part in _tags(m)] or current
    return sorted({name for m in current for name in m.model_fields})


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    found: list[type[BaseModel]] = []
    for argument in getattr(annotation, "__args__", ()):
        found += _models_in(argument)
    return found


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    kind = model.model_fields.get("kind")
    return tuple(getattr(kind.annotation, "__args__", ())) if kind else ()

"""All templates of a deployment as one graph: who refers to whom, also across stacks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Template = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    stack: str
    logical_id: str
    kind: str
    properties: Mapping[str, Any]
    whole: Mapping[str, Any]
    """With what stands beside the properties, such as ``UpdateReplacePolicy``."""

    @property
    def where(self) -> str:
        """How a problem names it."""
        return f"{self.stack}: {self.logical_id}"


@dataclass(frozen=True, slots=True)
class Templates:
    by_stack: Mapping[str, Template]

    def of_kind(self, kind: str) -> Iterator[Resource]:
        """Every resource of one CloudFormation type, in every stack."""
        for resource in self.all():
            if resource.kind == kind:
                yield resource

    def all(self) -> Iterator[Resource]:
        for stack, template in self.by_stack.items():
            for logical_id in template["Resources"]:
                yield self._resource(stack, logical_id)

    def named_by(self, value: Any, stack: str) -> Resource | None:
        """The resource that a reference in ``stack`` means; None for anything else."""
        match value:
            case {"Fn::ImportValue": str(name)}:
                return self._exported(name)
            case {"Ref": str(logical_id)} | {"Fn::GetAtt": [str(logical_id), *_]}:
                if logical_id in self.by_stack[stack]["Resources"]:
                    return self._resource(stack, logical_id)
        return None

    def _exported(self, name: str) -> Resource | None:
        found = self._export(name)
        return self.named_by(found[1], found[0]) if found else None

    def _export(self, name: str) -> tuple[str, Any] | None:
        for stack, template in self.by_stack.items():
            for output in template.get("Outputs", {}).values():
                if output.get("Export", {}).get("Name") == name:
                    return stack, output["Value"]
        return None

    def _resource(self, stack: str, logical_id: str) -> Resource:
        found = self.by_stack[stack]["Resources"][logical_id]
        return Resource(stack, logical_id, found["Type"], found.get("Properties", {}), found)


def text_of(value: Any) -> str:
    """A string of the template, in which each reference is a ``<>``."""
    match value:
        case str():
            return value
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(map(text_of, parts))
        case {"Fn::Base64": inner} | {"Fn::Sub": str(inner)}:
            return text_of(inner)
    return "<>"

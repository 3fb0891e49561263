"""The jobs of the sandbox and their results: the messages between the server and its processes."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from clarion.errors import FieldFault

# The processor time of one job. The process that needs more is killed by the kernel.
JOB_CPU_S = 0.25
_LIMITS = f"{JOB_CPU_S:g} s of processor time or its memory"


class CheckSchema(msgspec.Struct, tag=True, frozen=True):
    """Whether a document is a JSON Schema within its limits."""

    exceeded: ClassVar = FieldFault("data_schema", f"takes more than {_LIMITS}; make it simpler")
    document: dict[str, Any]


class FindFaults(msgspec.Struct, tag=True, frozen=True):
    """The faults of data, by a schema that was accepted."""

    exceeded: ClassVar = FieldFault("data", f"to check it by the schema takes more than {_LIMITS}")
    document: msgspec.Raw
    data: dict[str, Any]


class CheckTemplate(msgspec.Struct, tag=True, frozen=True):
    """The faults of a template."""

    exceeded: ClassVar = FieldFault("body", f"the template exceeds its limits: {_LIMITS}")
    subject: str | None
    body: str
    variables: tuple[str, ...]
    is_mjml: bool = False


class ConvertMjml(msgspec.Struct, tag=True, frozen=True):
    """The HTML of MJML, still with its Liquid tags."""

    exceeded: ClassVar = FieldFault("body", f"the template exceeds its limits: {_LIMITS}")
    body: str


class Render(msgspec.Struct, tag=True, frozen=True):
    """The text of a template."""

    exceeded: ClassVar = FieldFault("body", f"the template exceeds its limits: {_LIMITS}")
    subject: str | None
    body: str
    is_html: bool
    context: dict[str, Any]


Job = CheckSchema | FindFaults | CheckTemplate | ConvertMjml | Render


class JobResult(msgspec.Struct, frozen=True):
    """The result of a job: faults, or the text. `cpu_s` is the processor time that it took."""

    cpu_s: float = 0.0
    faults: tuple[FieldFault, ...] = ()
    subject: str | None = None
    body: str = ""

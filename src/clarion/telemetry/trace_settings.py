"""Whether there are traces, and by which exporter: the environment variables of OpenTelemetry."""

from __future__ import annotations

import os

from clarion.telemetry.logs import get_logger
from clarion.telemetry.traces import OFF, Tracer

# Any of these says where spans go.
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"
_EXPORTERS = ("otlp", "console")
_INSTALL = "the extra is not installed: pip install 'clarion[otel]'"


def find_exporter() -> str | None:
    """Return which exporter the environment asks for; None if there are to be no traces.

    `ValueError` if it asks for an unsupported one.
    """
    if _read("OTEL_SDK_DISABLED").lower() == "true":
        return None
    name = _read("OTEL_TRACES_EXPORTER") or ("otlp" if any(map(_read, _ENDPOINTS)) else "none")
    if name == "none":
        return None
    if name not in _EXPORTERS:
        raise ValueError("OTEL_TRACES_EXPORTER must be otlp, console or none")
    protocol = next(filter(None, map(_read, _PROTOCOLS)), _PROTOCOL)
    if name == "otlp" and protocol != _PROTOCOL:
        raise ValueError(f"OTEL_EXPORTER_OTLP_PROTOCOL must be {_PROTOCOL}")
    return name


def open_tracer(server_id: str) -> Tracer:
    """Return the tracer that the environment asks for.

    If that fails, it is logged, and there is no tracer: traces must not prevent the start.
    """
    try:
        name = find_exporter()
        return OFF if name is None else _load(name, server_id)
    except (ImportError, ValueError) as error:
        reason = _INSTALL if isinstance(error, ImportError) else str(error)
        get_logger().warning("traces_unavailable", reason=reason)
        return OFF


def _load(exporter: str, server_id: str) -> Tracer:
    # An extra, and 200 modules that nobody else needs.
    from clarion.telemetry.otel import make_tracer  # noqa: PLC0415

    tracer = make_tracer(exporter, server_id)
    get_logger().info("traces_on", exporter=exporter, sampler=tracer.sampler)
    return tracer


def _read(name: str) -> str:
    return os.environ.get(name, "").strip()

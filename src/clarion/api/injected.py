"""What Litestar hands to the handlers. Ports are Protocols: it cannot check them, nor need it."""

from __future__ import annotations

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from clarion import ports
from clarion.access import callers
from clarion.api import idempotency
from clarion.gateway import connections, dispatch, registry

Callers = NamedDependency[SkipValidation[callers.Callers]]
Clock = NamedDependency[SkipValidation[ports.Clock]]
Connections = NamedDependency[SkipValidation[connections.Connections]]
Devices = NamedDependency[SkipValidation[ports.Devices]]
DeviceTopics = NamedDependency[SkipValidation[ports.DeviceTopics]]
Dispatch = NamedDependency[SkipValidation[dispatch.Dispatch]]
FeedbackList = NamedDependency[SkipValidation[ports.FeedbackList]]
History = NamedDependency[SkipValidation[ports.History]]
Idempotency = NamedDependency[SkipValidation[idempotency.Idempotency]]
Keys = NamedDependency[SkipValidation[ports.Keys]]
Registry = NamedDependency[SkipValidation[registry.Registry]]
Statistics = NamedDependency[SkipValidation[ports.Statistics]]

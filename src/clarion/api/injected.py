"""What Litestar hands to the handlers. Ports are Protocols: it cannot check them, nor need it."""

from __future__ import annotations

from typing import Annotated

from litestar.params import Dependency

from clarion import ports
from clarion.access import callers
from clarion.api import idempotency
from clarion.gateway import connections, dispatch, registry

_AS_IT_IS = Dependency(skip_validation=True)

Callers = Annotated[callers.Callers, _AS_IT_IS]
Clock = Annotated[ports.Clock, _AS_IT_IS]
Connections = Annotated[connections.Connections, _AS_IT_IS]
Devices = Annotated[ports.Devices, _AS_IT_IS]
DeviceTopics = Annotated[ports.DeviceTopics, _AS_IT_IS]
Dispatch = Annotated[dispatch.Dispatch, _AS_IT_IS]
FeedbackList = Annotated[ports.FeedbackList, _AS_IT_IS]
History = Annotated[ports.History, _AS_IT_IS]
Idempotency = Annotated[idempotency.Idempotency, _AS_IT_IS]
Keys = Annotated[ports.Keys, _AS_IT_IS]
Registry = Annotated[registry.Registry, _AS_IT_IS]
Statistics = Annotated[ports.Statistics, _AS_IT_IS]

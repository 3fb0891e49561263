"""What Litestar hands to the handlers. Ports are Protocols: it cannot check them, nor need it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from litestar.di import NamedDependency
from litestar.params import SkipValidation

from clarion import ports
from clarion.access import callers
from clarion.api import idempotency
from clarion.catalog import kinds
from clarion.gateway import connections, dispatch, registry
from clarion.inbox import acts
from clarion.pipeline.stages import explaining

Acts = NamedDependency[SkipValidation[acts.Acts]]
Callers = NamedDependency[SkipValidation[callers.Callers]]
Catalog = NamedDependency[SkipValidation[kinds.Catalog]]
Clock = NamedDependency[SkipValidation[ports.Clock]]
Connections = NamedDependency[SkipValidation[connections.Connections]]
Devices = NamedDependency[SkipValidation[ports.Devices]]
DeviceTopics = NamedDependency[SkipValidation[ports.DeviceTopics]]
Dispatch = NamedDependency[SkipValidation[dispatch.Dispatch]]
FeedbackList = NamedDependency[SkipValidation[ports.FeedbackList]]
History = NamedDependency[SkipValidation[ports.History]]
Idempotency = NamedDependency[SkipValidation[idempotency.Idempotency]]
Inboxes = NamedDependency[SkipValidation[ports.Inboxes]]
Keys = NamedDependency[SkipValidation[ports.Keys]]
# Called with app and person after something changed by which their notifications are decided.
OnPersonChanged = NamedDependency[SkipValidation[Callable[[str, str], Awaitable[None]]]]
Registry = NamedDependency[SkipValidation[registry.Registry]]
Statistics = NamedDependency[SkipValidation[ports.Statistics]]
Templates = NamedDependency[SkipValidation[ports.Templates]]
Types = NamedDependency[SkipValidation[ports.Types]]
Users = NamedDependency[SkipValidation[ports.Users]]
Deliveries = NamedDependency[SkipValidation[ports.Deliveries]]
Events = NamedDependency[SkipValidation[ports.Events]]
Explaining = NamedDependency[SkipValidation[explaining.Explaining]]
Facts = NamedDependency[SkipValidation[ports.Facts]]
# Called when there is work to do at once.
Wake = NamedDependency[SkipValidation[Callable[[], None]]]

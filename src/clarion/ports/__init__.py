"""The ports of the house. Their docstrings are the contract that the contract suite checks.

Times are integer milliseconds UTC and always given by the caller. Every method of a store port is
scoped by app; rows of another app are as if they were not there. A method that changes something
returns after the change is durable. Any method may raise `StoreUnavailable`; one that writes may
raise `Overloaded` or `StorageFull`, and then has changed nothing.
"""

from clarion.ports.access import Administrators, Apps, Keys, Vault
from clarion.ports.gateway import (
    Broadcasts,
    Devices,
    DeviceTopics,
    FeedbackList,
    History,
    Messages,
    Statistics,
)
from clarion.ports.inbox import Inboxes
from clarion.ports.people import Templates, Types, Users
from clarion.ports.pipeline import Courier, Deliveries, Events, Facts, Ledger, Queue, Retention
from clarion.ports.shared import Clock, Dependency, Limits

__all__ = [
    "Administrators",
    "Apps",
    "Broadcasts",
    "Clock",
    "Courier",
    "Deliveries",
    "Dependency",
    "DeviceTopics",
    "Devices",
    "Events",
    "Facts",
    "FeedbackList",
    "History",
    "Inboxes",
    "Keys",
    "Ledger",
    "Limits",
    "Messages",
    "Queue",
    "Retention",
    "Statistics",
    "Templates",
    "Types",
    "Users",
    "Vault",
]

"""What Litestar hands to the handlers. Ports are Protocols: it cannot check them, nor need it."""

from __future__ import annotations

from typing import Annotated

from litestar.params import Dependency

from clarion import ports
from clarion.access import callers

_AS_IT_IS = Dependency(skip_validation=True)

Callers = Annotated[callers.Callers, _AS_IT_IS]
Clock = Annotated[ports.Clock, _AS_IT_IS]
Keys = Annotated[ports.Keys, _AS_IT_IS]
Vault = Annotated[ports.Vault, _AS_IT_IS]

"""Request bodies."""

from __future__ import annotations

import msgspec


class Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A request body: an unknown field is an error, not ignored."""

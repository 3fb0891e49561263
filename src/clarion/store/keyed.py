"""How a list of keys is handed to a statement: as the keys of a JSON object.

`x IN (SELECT key FROM json_each(:keys))` is the one form that both engines read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

_encode = msgspec.json.Encoder().encode


def keys_of(keys: Iterable[str]) -> str:
    """Return the text for a parameter of that kind."""
    return _encode(dict.fromkeys(keys, 0)).decode()

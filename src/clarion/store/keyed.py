"""Lists of keys as a parameter of a statement: as the keys of a JSON object.

`x IN (SELECT key FROM json_each(:keys))` is the one form that both engines support.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

_encode = msgspec.json.Encoder().encode


def keys_of(keys: Iterable[str]) -> str:
    """Return the JSON object with these keys."""
    return _encode(dict.fromkeys(keys, 0)).decode()

"""Apps with their live user keys, cached: every request with a user token needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from clarion.access.app_keys import read_public_key, user_key_context
from clarion.access.model import App, UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys, Apps
from clarion.access.vault import Vault
from clarion.nodes.cache import NodeCache
from clarion.nodes.invalidation import Invalidation

# How long an app is served from the cache, as long as an API key: commands change apps, too.
KNOWN_MS = 2_000
KNOWN_LIMIT = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class VerifyingKey:
    """A user key, ready to verify: it can be used with its own algorithm only."""

    algorithm: UserTokenAlgorithm
    key: bytes | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey


class KnownApp(msgspec.Struct, frozen=True):
    """An app, and its live user keys by `kid`."""

    app: App
    keys: dict[str, VerifyingKey]


@dataclass(slots=True)
class KnownApps:
    """Reads apps, each at most once in two seconds."""

    apps: Apps
    user_keys: AppKeys[UserKey]
    vault: Vault
    # Apps that had a key revoked or expire since this was last cleared.
    ended: set[str] = field(default_factory=set, init=False, repr=False)
    _known: NodeCache[str, KnownApp] = field(init=False, repr=False)
    # The `kid` of the keys that each app had: not more than there are apps.
    _kids: dict[str, frozenset[str]] = field(default_factory=dict, init=False, repr=False)
    # Drops an app from the cache of every node, so that it is read again.
    forget: Invalidation = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Forget apps that another node has changed."""
        self._known = NodeCache(KNOWN_MS, KNOWN_LIMIT)
        self.forget = Invalidation("access.app", self._known.forget, self._known.forget_all)

    async def find(self, app_id: str, now: int) -> KnownApp | None:
        """Return the app, or None."""
        if entry := self._known.get(app_id, now):
            return entry[1]
        since, before = self._known.changes.count, self._kids.get(app_id, frozenset())
        app = await self.apps.get(app_id)
        if app is None:
            self._kids.pop(app_id, None)
            return None
        live = [each for each in await self.user_keys.list(app_id) if each.is_live(now)]
        known = KnownApp(app, {each.kid: self._open(each) for each in live})
        self._kids[app_id] = frozenset(known.keys)
        if not before <= self._kids[app_id]:
            self.ended.add(app_id)
        self._known.put(app_id, known, now, since)
        return known

    def drop(self, app_id: str) -> None:
        """Keep nothing of an app that was deleted."""
        self._known.forget(app_id)
        self._kids.pop(app_id, None)

    def _open(self, key: UserKey) -> VerifyingKey:
        opened = self.vault.open(key.key, user_key_context(key.app_id, key.kid))
        if key.algorithm is UserTokenAlgorithm.HS256:
            return VerifyingKey(key.algorithm, opened)
        return VerifyingKey(key.algorithm, read_public_key(opened, key.algorithm))

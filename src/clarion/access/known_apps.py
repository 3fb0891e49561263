"""Apps with their live user keys, cached: every request with a user token needs them."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from clarion.access.app_keys import read_public_key, user_key_context
from clarion.access.model import App, UserKey, UserTokenAlgorithm
from clarion.access.sql import AppKeys, Apps
from clarion.access.vault import Vault
from clarion.nodes.invalidation import Invalidation

# How long an app is served from the cache, as long as an API key: commands change apps, too.
KNOWN_MS = 2_000
_LONG_AGO = -KNOWN_MS


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
    # Apps of which a key was revoked or has expired since this was last taken.
    ended: set[str] = field(default_factory=set, init=False, repr=False)
    # By id: when the app was read, and the app.
    _known: dict[str, tuple[int, KnownApp]] = field(default_factory=dict, init=False, repr=False)
    # Has an app read again when it is next needed, on every node.
    forget: Invalidation = field(init=False, repr=False)
    # How often it was called: what was read before may be older than a change.
    _changes: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        """Forget apps that another node has changed."""
        self.forget = Invalidation("access.app", self._forget, self._forget_all)

    async def find(self, app_id: str, now: int) -> KnownApp | None:
        """Return the app, or None."""
        read_at, known = self._known.get(app_id, (0, None))
        if known is not None and 0 <= now - read_at < KNOWN_MS:
            return known
        changes = self._changes
        app = await self.apps.get(app_id)
        if app is None:
            self._known.pop(app_id, None)
            return None
        before = known
        live = [each for each in await self.user_keys.list(app_id) if each.is_live(now)]
        known = KnownApp(app, {each.kid: self._open(each) for each in live})
        if before is not None and not before.keys.keys() <= known.keys.keys():
            self.ended.add(app_id)
        read_at = now if changes == self._changes else _LONG_AGO
        self._known[app_id] = (read_at, known)  # not more than there are apps
        return known

    def _forget_all(self) -> None:
        for app_id in list(self._known):
            self._forget(app_id)

    def _forget(self, app_id: str) -> None:
        self._changes += 1
        if app_id in self._known:  # what it was is compared with what it will be
            self._known[app_id] = (_LONG_AGO, self._known[app_id][1])

    def drop(self, app_id: str) -> None:
        """Keep nothing of an app that was deleted."""
        self._changes += 1
        self._known.pop(app_id, None)

    def _open(self, key: UserKey) -> VerifyingKey:
        opened = self.vault.open(key.key, user_key_context(key.app_id, key.kid))
        if key.algorithm is UserTokenAlgorithm.HS256:
            return VerifyingKey(key.algorithm, opened)
        return VerifyingKey(key.algorithm, read_public_key(opened, key.algorithm))

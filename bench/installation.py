"""An installation of Clarion for benchmarks and fault tests: its app, its provider and its devices.

Devices are created in the store itself, where a thousand take a moment. Their tokens and secrets
follow from their numbers, so that another process needs to know only how many there are.
"""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt

from clarion.clock import SystemClock
from clarion.people.model import User
from clarion.people.sql import Users
from clarion.push.model import Device, DeviceDetails, Platform
from clarion.push.registry import hash_secret
from clarion.push.sql.devices import ADD as ADD_DEVICE
from clarion.push.tables import DEVICES
from clarion.settings import Settings, load
from clarion.store.engine import Engine
from clarion.store.opening import open_engine
from clarion.store.statement import Unit

AT_A_TIME = 2_000


@dataclass(frozen=True, kw_only=True)
class Installation:
    """What `clarion init` wrote down about its first app."""

    settings: Settings
    app_id: str
    bundle_id: str
    api_key: str
    team_id: str
    key_id: str
    provider_key: str

    @classmethod
    def read(cls, data: Path, database: str = "") -> "Installation":
        """Read `first-run.json` of an installation."""
        app = json.loads((data / "first-run.json").read_bytes())["app"]
        return cls(
            settings=load({"data": str(data), "database": database}),
            app_id=app["id"],
            bundle_id=app["bundle_id"],
            api_key=app["api_key"],
            team_id=app["team_id"],
            key_id=app["key_id"],
            provider_key=Path(app["provider_key_path"]).read_text(),
        )

    def push_headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of a push: a provider token of this moment, and the topic."""
        claims = {"iss": self.team_id, "iat": int(time.time())}
        token = jwt.encode(claims, self.provider_key, "ES256", {"kid": self.key_id})
        return (("authorization", f"bearer {token}"), ("apns-topic", self.bundle_id))

    def api_headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of a call by the app's server."""
        bearer = ("authorization", f"Bearer {self.api_key}")
        return (bearer, ("content-type", "application/json"))

    async def add_devices(self, count: int) -> list[str]:
        """Register devices number 0 to `count` and return their ids."""
        ids: list[str] = []
        async with self.opened() as engine:
            for start in range(0, count, AT_A_TIME):
                numbers = range(start, min(start + AT_A_TIME, count))
                part = [self._device(number) for number in numbers]
                await engine.write(Unit("", (ADD_DEVICE.many([*map(DEVICES.bind, part)]),)))
                ids += [device.id for device in part]
        return ids

    async def add_users(self, count: int) -> None:
        """Create users number 0 to `count`."""
        now = SystemClock().now()
        users = [
            User(app_id=self.app_id, id=user_of(n), name=f"U {n}", created_at=now, updated_at=now)
            for n in range(count)
        ]
        async with self.opened() as engine:
            store = Users(engine)
            for start in range(0, count, AT_A_TIME):
                part = users[start : start + AT_A_TIME]
                await asyncio.gather(*(store.put(user) for user in part))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Engine]:
        """Open its store, beside the server if that runs."""
        engine = await open_engine(
            self.settings.database_url,
            waiting_limit=self.settings.write_waiting,
            batch_limit=self.settings.write_batch,
            on_broken=_give_up,
        )
        try:
            yield engine
        finally:
            await engine.close()

    def _device(self, number: int) -> Device:
        clock = SystemClock()
        now = clock.now()
        return Device(
            id=clock.new_id(),
            app_id=self.app_id,
            token_hash=hashlib.sha256(token_of(number).encode()).digest(),
            secret_hash=hash_secret(secret_of(number)),
            platform=Platform.CLARION,
            details=DeviceDetails(),
            created_at=now,
            last_seen_at=now,
        )


def _give_up(message: str) -> None:
    raise OSError(message)


def token_of(number: int) -> str:
    """Return the token of a device: 64 hexadecimal digits, as Apple's have."""
    return hashlib.sha256(b"token %d" % number).hexdigest()


def secret_of(number: int) -> str:
    """Return the secret of a device."""
    return hashlib.sha256(b"secret %d" % number).hexdigest()[:32]


def user_of(number: int) -> str:
    """Return the id of a user."""
    return f"user-{number}"

"""A user has only so many devices: one more revokes the one that was seen longest ago."""

from pathlib import Path

import pytest

from clarion.push.model import DeviceDetails, InvalidationReason
from clarion.push.registry import Registry
from clarion.push.sql.devices import SqlDevices
from clarion.store.opening import migrate, open_engine
from tests.factories import NOW, FixedClock, make_device


@pytest.mark.parametrize("limit", [1, 3])
async def test_one_more_device_revokes_the_one_seen_longest_ago(tmp_path: Path, limit: int) -> None:
    url = f"sqlite:///{tmp_path / 'clarion.db'}"
    await migrate(url)
    engine = await open_engine(url, waiting_limit=9, batch_limit=9, on_broken=pytest.fail)
    try:
        devices = SqlDevices(engine)
        registry = Registry(devices, FixedClock(NOW), per_user=limit)
        of_ana = DeviceDetails(user_id="ana")
        made = [make_device(details=of_ana, last_seen_at=NOW + n) for n in range(limit + 2)]
        for device in made:
            assert await registry.add(device) is True
        ended = await registry.make_room("app", "ana")
        assert {device.id for device in ended} == {made[0].id, made[1].id}
        assert {device.invalidation_reason for device in ended} == {InvalidationReason.REVOKED}
        assert await registry.make_room("app", "ana") == ()
        assert await registry.make_room("app", None) == ()
    finally:
        await engine.close()

"""The `Administrators` port."""

import pytest

from clarion.access.model import Role
from clarion.access.port import Administrators
from clarion.errors import Conflict
from tests.factories import make_administrator


@pytest.mark.parametrize("role", Role)
async def test_an_administrator_comes_back_as_made(
    administrators: Administrators, role: Role
) -> None:
    ana = make_administrator("Ána", role=role)
    await administrators.create(ana)
    assert await administrators.find("Ána") == ana


async def test_an_unknown_name_is_none(administrators: Administrators) -> None:
    await administrators.create(make_administrator("ana"))
    assert await administrators.find("ANA") is None
    assert await administrators.find("") is None


async def test_a_taken_username_is_a_conflict_and_changes_nothing(
    administrators: Administrators,
) -> None:
    first = make_administrator("ana")
    await administrators.create(first)
    with pytest.raises(Conflict, match=r"^An administrator with this username already exists\.$"):
        await administrators.create(make_administrator("ana", role=Role.ADMIN))
    assert await administrators.find("ana") == first

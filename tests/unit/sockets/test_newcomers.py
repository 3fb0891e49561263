"""Connections that have not authenticated: the oldest makes room, strangers before the known."""

from dataclasses import dataclass

import pytest

from clarion.sockets import newcomers as module
from clarion.sockets.newcomers import Newcomers, group_address


@dataclass(eq=False)
class Stranger:
    """A `Newcomer`."""

    address: str
    is_dropped: bool = False

    def drop(self) -> None:
        assert not self.is_dropped
        self.is_dropped = True


def arrive(newcomers: Newcomers, *addresses: str) -> list[Stranger]:
    arrived = [Stranger(address) for address in addresses]
    for each in arrived:
        newcomers.add(each)
    return arrived


def test_one_more_of_an_address_closes_its_oldest() -> None:
    newcomers = Newcomers(per_address=2)
    other, *same = arrive(newcomers, "b", "a", "a", "a", "a")
    assert [each.is_dropped for each in same] == [True, True, False, False]
    assert (other.is_dropped, len(newcomers)) == (False, 3)


def test_one_more_in_all_closes_the_oldest() -> None:
    newcomers = Newcomers(per_address=9, total=2)
    arrived = arrive(newcomers, "a", "b", "c")
    assert [each.is_dropped for each in arrived] == [True, False, False]
    assert newcomers.add(Stranger("d")) is True
    assert len(newcomers) == 2


def test_strangers_are_closed_before_those_from_addresses_that_are_known() -> None:
    newcomers = Newcomers(per_address=9, total=3)
    (user,) = arrive(newcomers, "home")
    newcomers.admit(user)
    again, first, second = arrive(newcomers, "home", "a", "b")
    arrive(newcomers, "c", "d")
    assert (again.is_dropped, first.is_dropped, second.is_dropped) == (False, True, True)
    arrive(newcomers, "home", "home", "home")
    assert again.is_dropped, "there are none but known ones left"
    assert not user.is_dropped


def test_one_that_authenticates_or_leaves_takes_no_room() -> None:
    newcomers = Newcomers(per_address=1, total=1)
    (first,) = arrive(newcomers, "a")
    newcomers.admit(first)
    (second,) = arrive(newcomers, "a")
    newcomers.discard(second)
    newcomers.discard(second)
    (third,) = arrive(newcomers, "a")
    assert [each.is_dropped for each in (first, second, third)] == [False] * 3
    newcomers.drop_all()
    assert (third.is_dropped, len(newcomers), newcomers.drop_oldest()) == (True, 0, False)


def test_known_addresses_are_forgotten_last_seen_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KNOWN_LIMIT", 2)
    newcomers = Newcomers(per_address=9)
    for address in ("a", "b", "a", "c"):
        newcomers.admit(Stranger(address))
    assert list(newcomers._known_addresses) == ["a", "c"]


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_of_ipv6_the_first_half_is_the_address(host: str, group: str) -> None:
    assert group_address(host) == group

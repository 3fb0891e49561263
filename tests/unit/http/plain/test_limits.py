"""How long connections may wait, and which one is closed for another."""

from typing import Any

import pytest

from clarion.http.connections import Closed
from clarion.http.plain.limits import LIMITS_S, OpenConnections, Waits
from clarion.telemetry.limited_log import LimitedLog
from tests.factories import FixedClock


class Seconds:
    """A clock that the test moves."""

    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class Place:
    """The `Open` port: a connection that only counts."""

    def __init__(self, host: str = "192.0.2.1", descriptor: int = 0) -> None:
        self.host = host
        self.waits: Waits | None = None
        self.descriptor = descriptor
        self.is_dropped = False

    def drop(self) -> None:
        self.is_dropped = True

    def end(self) -> None: ...


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def make(seconds: Seconds, **limits: Any) -> OpenConnections:
    return OpenConnections(
        **{"limit": 100, "address_limit": 100, **limits},
        log=LimitedLog(FixedClock()),
        time=seconds,
    )


def add(connections: OpenConnections, *places: Place) -> None:
    for place in places:
        assert connections.add(place)


@pytest.mark.parametrize("waits", Waits)
def test_each_state_has_its_time(seconds: Seconds, waits: Waits) -> None:
    connections, place = make(seconds), Place()
    add(connections, place)
    connections.wait(place, waits)
    seconds.now += LIMITS_S[waits]
    connections.expire()
    assert not place.is_dropped
    seconds.now += 0.1
    connections.expire()
    assert place.is_dropped
    assert len(connections) == 0
    assert sum(connections.closed.values()) == 1


def test_one_that_answers_a_request_is_never_closed(seconds: Seconds) -> None:
    connections, place = make(seconds, limit=1, address_limit=1), Place()
    add(connections, place)
    connections.work(place)
    seconds.now += 1e6
    connections.expire()
    assert connections.make_room() > 0
    assert not connections.add(Place())
    assert not place.is_dropped
    assert len(connections) == 1


def test_of_an_address_with_too_many_the_one_that_is_needed_least_is_closed(
    seconds: Seconds,
) -> None:
    connections = make(seconds, address_limit=3)
    provider, idle, silent = Place(), Place(), Place()
    add(connections, provider, idle, silent, Place("192.0.2.2"))
    connections.wait(provider, Waits.PROVIDER)
    connections.wait(idle, Waits.IDLE)
    for closed in (silent, idle, provider):
        newest = Place()
        assert connections.add(newest)
        connections.work(newest)
        assert closed.is_dropped
    assert connections.closed == {Closed.ADDRESS: 3}
    assert len(connections) == 4


def test_of_ipv6_64_bits_are_one_address(seconds: Seconds) -> None:
    connections = make(seconds, address_limit=1)
    first, same, other = Place("2001:db8::1"), Place("2001:db8::2"), Place("2001:db8:0:1::1")
    add(connections, first, same, other)
    assert (first.is_dropped, same.is_dropped) == (True, False)


def test_this_machine_has_no_limit_as_an_address(seconds: Seconds) -> None:
    connections = make(seconds, address_limit=1)
    places = [Place("127.0.0.1") for _ in range(5)]
    add(connections, *places)
    assert not any(place.is_dropped for place in places)


def test_a_full_listener_closes_a_silent_connection_after_a_moment(seconds: Seconds) -> None:
    connections = make(seconds, limit=2)
    idle, silent = Place(), Place()
    add(connections, idle, silent)
    connections.wait(idle, Waits.IDLE)
    # Its request may be on its way; nobody else is closed for the next one meanwhile.
    assert connections.make_room() > 0
    assert not idle.is_dropped
    seconds.now += 0.06
    assert connections.make_room() == 0
    assert silent.is_dropped
    assert connections.closed == {Closed.CROWDED: 1}


def test_what_has_begun_a_head_has_a_second_in_a_full_listener(seconds: Seconds) -> None:
    connections, place = make(seconds, limit=1), Place()
    add(connections, place)
    connections.wait(place, Waits.RECEIVING)
    seconds.now += 0.9
    assert connections.make_room() > 0
    seconds.now += 0.2
    assert connections.make_room() == 0
    assert place.is_dropped


def test_idle_ones_make_room_before_those_of_providers(seconds: Seconds) -> None:
    connections = make(seconds, limit=3)
    provider, older, newer = Place(), Place(), Place()
    add(connections, provider, older, newer)
    connections.wait(provider, Waits.PROVIDER)
    connections.wait(older, Waits.IDLE)
    connections.wait(newer, Waits.IDLE)
    for closed in (older, newer, provider):
        assert connections.make_room() == 0
        assert closed.is_dropped
        connections.add(Place())
        connections.work(next(iter(connections._list()[-1:])))


def test_descriptors_are_those_of_open_connections(seconds: Seconds) -> None:
    connections = make(seconds)
    first, second = Place(descriptor=7), Place(descriptor=8)
    add(connections, first, second)
    connections.discard(first)
    connections.discard(first)
    assert connections.descriptors == {8}
    connections.drop_spare()
    assert second.is_dropped
    assert connections.descriptors == set()


def test_a_stop_closes_only_what_waits(seconds: Seconds) -> None:
    connections, busy, idle = make(seconds), Place(), Place()
    add(connections, busy, idle)
    connections.work(busy)
    connections.drop_waiting()
    assert (busy.is_dropped, idle.is_dropped) == (False, True)
    connections.drop_all()
    assert busy.is_dropped

"""Live streams of a running server: every client receives every change."""

from collections.abc import Iterator
from contextlib import ExitStack
from time import monotonic

import pytest

from tests.e2e.conftest import Server
from tests.e2e.installation import Installation
from tests.e2e.live_clients import Event, InboxUser, Stream, Watch
from tests.lanes import limit_s


@pytest.fixture
def ana(server: Server) -> InboxUser:
    return InboxUser(server)


@pytest.fixture(params=["HTTP/1.1", "HTTP/2"])
def watch(request: pytest.FixtureRequest, ana: InboxUser) -> Watch:
    return ana.watch if request.param == "HTTP/1.1" else ana.watch_by_http_2


def summary(*events: Event) -> list[tuple[str, str, int]]:
    return [(event.name, event.id, event.data["unread_count"]) for event in events]


def test_a_stream_begins_with_the_state_and_sends_every_change(
    ana: InboxUser, watch: Watch
) -> None:
    (made,) = ana.add()
    with watch() as stream:
        begin = stream.take()
        assert begin == Event("1", "state", {"type": "state", "unread_count": 1, "sequence": 1})
        events = []
        for action in ("read", "unread", "dismiss"):
            changed = ana.apply(action, made)
            event = stream.take()
            events.append(event)
            del changed["unread_count"]
            assert event.data["item"] == changed
            assert event.data["type"] == event.name
            assert event.data["sequence"] == changed["sequence"]
        assert summary(*events) == [
            ("read", "2", 0),
            ("notification", "3", 1),
            ("dismissed", "4", 0),
        ]


def test_what_is_new_in_the_store_is_sent(ana: InboxUser) -> None:
    with ana.watch() as stream:
        assert summary(stream.take()) == [("state", "0", 0)]
        (made,) = ana.add()
        event = stream.take()
        assert summary(event) == [("notification", "1", 1)]
        assert event.data["item"]["id"] == made


def test_an_event_arrives_before_anybody_polls(server: Server, ana: InboxUser) -> None:
    assert server.app.ask("PUT", f"/v1/users/{ana.id}", {}).status in {200, 201}
    with ana.watch() as stream:
        assert stream.take().name == "state"
        for number in range(1, 4):
            began = monotonic()
            event = {"type": "COMMENT_REPLY", "recipient": {"user_id": ana.id}, "data": {}}
            assert server.app.post("/v1/events", event).status == 202
            update = stream.take()
            assert (update.name, update.id) == ("notification", f"{number}")
            # Three of them: a poll every 3 s could not be in time for all.
            assert monotonic() - began < limit_s(2)


def test_all_clients_receive_it_at_once(ana: InboxUser) -> None:
    made = ana.add(3)
    with ExitStack() as stack:
        streams = [stack.enter_context(ana.watch()) for _ in range(5)]
        assert {stream.take().name for stream in streams} == {"state"}
        ana.apply("dismiss", made[0])
        ana.me.post("/v1/me/notifications/read-all")
        for stream in streams:
            events = [stream.take() for _ in range(3)]
            assert [event.name for event in events] == ["dismissed", "read", "read"]
            assert events[-1].data["unread_count"] == 0


def test_a_client_that_reconnects_misses_nothing(ana: InboxUser) -> None:
    made = ana.add(3)
    with ana.watch() as stream:
        seen = stream.take().id
    ana.apply("read", made[0])
    ana.apply("dismiss", made[1])
    for query, headers in (("", {"Last-Event-ID": seen}), (f"?after={seen}", {})):
        with ana.watch(query, **headers) as stream:
            begin, *events = (stream.take() for _ in range(3))
            assert summary(begin) == [("state", "3", 1)]
            assert summary(*events) == [("read", "4", 1), ("dismissed", "5", 1)]
    # What a browser adds when it reconnects is newer than what the page was opened with.
    with ana.watch("?after=0", **{"Last-Event-ID": "4"}) as stream:
        assert [event.id for event in (stream.take(), stream.take())] == ["4", "5"]


def test_a_client_that_missed_too_much_gets_a_resync(ana: InboxUser) -> None:
    (made,) = ana.add()
    with ana.watch("?after=2000") as stream:
        assert summary(stream.take(), stream.take()) == [("state", "2000", 1), ("resync", "1", 1)]
        ana.apply("read", made)
        assert summary(stream.take()) == [("read", "2", 0)]


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 20, "٣"])
def test_a_bad_place_to_resume_is_named(ana: InboxUser, value: str) -> None:
    given = {"Last-Event-ID": value.encode().decode("latin-1")}
    answer = ana.me.get("/v1/me/stream", headers=given)
    assert (answer.status, answer.fields) == (422, ["Last-Event-ID"])
    if value.isascii():
        answer = ana.me.get(f"/v1/me/stream?after={value}")
        assert (answer.status, answer.fields) == (422, ["after"])


def test_only_a_user_has_a_stream(server: Server, ana: InboxUser) -> None:
    assert server.anyone.get("/v1/me/stream").status == 401
    assert server.app.get("/v1/me/stream").status == 403
    for method in ("POST", "HEAD"):
        assert ana.me.ask(method, "/v1/me/stream").status == 405
    # Never in the URL: it would be in the log of every proxy.
    assert server.anyone.get(f"/v1/me/stream?token={ana.token}").status == 401


def test_another_user_receives_nothing(server: Server, ana: InboxUser) -> None:
    (made,) = ana.add()
    bo = InboxUser(server)
    with bo.watch() as stream:
        assert summary(stream.take()) == [("state", "0", 0)]
        ana.apply("read", made)
        (own,) = bo.add()
        assert stream.take().data["item"]["id"] == own


def test_a_stream_ends_with_its_token(ana: InboxUser) -> None:
    # A token is good for 30 s longer than it says.
    with ana.watch(Authorization=f"Bearer {ana.make_token(-26)}") as stream:
        assert stream.take().name == "state"
        assert stream.take().data == {"type": "end", "reason": "token_expired"}
        assert stream.next() is None


@pytest.fixture
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of our own, which takes two streams of a user and three in all."""
    folder = tmp_path_factory.mktemp("small")
    installation = Installation(folder, user_streams="2", node_streams="3", grace_s="8")
    first = installation.initialise()
    with installation:
        yield Server(installation, first)


def test_there_is_a_limit_for_a_user_and_for_all(small: Server) -> None:
    ana, bo = InboxUser(small), InboxUser(small)
    with ana.watch() as first, ana.watch() as second:
        assert first.take().name == second.take().name == "state"
        refused = ana.me.get("/v1/me/stream")
        assert (refused.status, refused.problem["code"]) == (429, "too_many_requests")
        with bo.watch() as third:
            assert third.take().name == "state"
            assert "clarion_inbox_streams 3.0" in small.anyone.get("/metrics").body.decode()
            refused = InboxUser(small).me.get("/v1/me/stream")
            assert (refused.status, refused.problem["code"]) == (503, "overloaded")
    wait_for_room(small, ana)


def wait_for_room(server: Server, user: InboxUser) -> None:
    """Streams that were left make room for others, as soon as the server has noticed."""
    give_up = monotonic() + limit_s(10)
    while "clarion_inbox_streams 0.0" not in server.anyone.get("/metrics").body.decode():
        assert monotonic() < give_up
    with user.watch() as stream:
        assert stream.take().name == "state"


@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2"])
def test_a_stopping_server_ends_its_streams_first(small: Server, version: str) -> None:
    ana = InboxUser(small)
    opened = ana.watch() if version == "HTTP/1.1" else ana.watch_by_http_2()
    with opened as stream:
        assert stream.take().name == "state"
        process = small.installation.process
        assert process is not None
        process.terminate()
        assert stream.take().data == {"type": "end", "reason": "restarting"}
        assert stream.next() is None
        # Well within the grace of 8 s: nothing was waited for.
        assert process.wait(timeout=limit_s(5)) == 0


def test_streams_are_counted_as_requests_when_they_begin(ana: InboxUser) -> None:
    with ana.watch() as stream:
        assert isinstance(stream, Stream)
        assert stream.take().name == "state"
        assert 'route="/v1/me/stream",status="200"' in ana.server.read_metrics()


def test_the_stream_is_in_the_description_of_the_api(server: Server) -> None:
    described = server.anyone.get("/openapi.json").json["paths"]["/v1/me/stream"]["get"]
    assert list(described["responses"]["200"]["content"]) == ["text/event-stream"]
    assert {each["name"] for each in described["parameters"]} == {
        "after",
        "Last-Event-ID",
        "ticket",
    }

"""`clarion device listen` and `clarion send`, run against a real server."""

import http.client
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from tests import fork_server
from tests.fork_server import CLARION, Process
from tests.processes import Account, Daemon, Server, environment, free_port

RUN_LIMIT_S = 100.0
NO_DEVICE = "a" * 64


class ClarionServer(Server):
    """A server whose first-run.json has its addresses, so that commands need only `--data`."""

    def __init__(self) -> None:
        super().__init__()
        self.tls_port, self.gateway_port = free_port(), free_port()
        self.data = Path()

    def prepare(self, folder: Path) -> Daemon:
        self.data = folder / "data"
        flags = [
            f"--data={self.data}",
            f"--listen=127.0.0.1:{self.port}",
            f"--tls-listen=127.0.0.1:{self.tls_port}",
            f"--gateway-listen=127.0.0.1:{self.gateway_port}",
        ]
        subprocess.run([*CLARION, "init", *flags], env=environment(folder), check=True)
        return Daemon([*CLARION, "serve", *flags], folder, Account(), lambda _: self.is_ready())

    def is_ready(self) -> bool:
        try:
            return self.get("/ready")[0] == 200
        except OSError:
            return False

    def get(self, path: str) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", path, headers={"authorization": f"Bearer {self.api_key}"})
        response = connection.getresponse()
        answer = response.status, json.loads(response.read())
        connection.close()
        return answer

    @property
    def api_key(self) -> str:
        key: str = json.loads((self.data / "first-run.json").read_bytes())["app"]["api_key"]
        return key


class Listener:
    """A running `clarion device listen --json`."""

    def __init__(self, process: Process, printed: IO[str], errors: Path) -> None:
        self.process, self._printed, self._errors = process, printed, errors

    def next(self, wanted: str) -> dict[str, Any]:
        """Return the next line of this type; other lines are skipped."""
        for line in self._printed:
            fields: dict[str, Any] = json.loads(line)
            if fields["type"] == wanted:
                return fields
        raise AssertionError(f"it ended without {wanted}: {self.errors()}")

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> int:
        return self.process.wait(RUN_LIMIT_S)

    def errors(self) -> str:
        return self._errors.read_text()


class Home:
    """A data directory for one test, whose commands call the shared server."""

    def __init__(self, folder: Path, server: ClarionServer) -> None:
        self.folder = folder
        (folder / "tls").mkdir(parents=True)
        shutil.copy(server.data / "first-run.json", folder)
        shutil.copy(server.data / "tls" / "ca.pem", folder / "tls")

    def run(self, *arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        command = [*CLARION, *arguments, f"--data={self.folder}"]
        return fork_server.run(command, environment(self.folder), typed, RUN_LIMIT_S)

    def send(self, *arguments: str, typed: str = "") -> list[str]:
        """Send, and return the ids of what was accepted."""
        done = self.run("send", *arguments, typed=typed)
        assert done.returncode == 0, done.stderr
        return [line.split()[0] for line in done.stdout.splitlines()]

    def listen(self, *arguments: str) -> list[dict[str, Any]]:
        """Listen until the command exits, and return what it printed."""
        done = self.run("device", "listen", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    @contextmanager
    def listening(self, *arguments: str) -> Iterator[Listener]:
        command = [*CLARION, "device", "listen", "--json", *arguments, f"--data={self.folder}"]
        errors, lines = self.folder / "errors", os.pipe()
        with (
            errors.open("w") as log,
            os.fdopen(lines[1], "w") as printed,
            Path(os.devnull).open() as nothing,
        ):
            streams = [nothing.fileno(), printed.fileno(), log.fileno()]
            process = fork_server.start(command, environment(self.folder), streams)
        with os.fdopen(lines[0]) as printed:
            try:
                yield Listener(process, printed, errors)
            finally:
                process.kill()
                process.wait()

    def register(self) -> dict[str, Any]:
        """Register and connect a device, disconnect it, and return its `ready` line."""
        with self.listening() as listener:
            ready = listener.next("ready")
            assert listener.interrupt() == 0
        return ready


@pytest.fixture(scope="module")
def server() -> Iterator[ClarionServer]:
    with ClarionServer() as server:
        yield server


@pytest.fixture
def home(tmp_path: Path, server: ClarionServer) -> Home:
    return Home(tmp_path / "home", server)


def bodies(shown: list[dict[str, Any]]) -> list[str]:
    """Return the texts of the messages in what was printed."""
    messages = [each for each in shown if each["type"] == "notification"]
    return [each["payload"]["aps"]["alert"]["body"] for each in messages]


def test_a_push_arrives_and_is_acknowledged(home: Home, server: ClarionServer) -> None:
    with home.listening("--exit-after=1") as listener:
        ready = listener.next("ready")
        (sent,) = home.send("Hello", "there", "--title=Greeting", "--priority=5")
        arrived = listener.next("notification")
        assert listener.ended() == 0
    assert arrived["payload"] == {"aps": {"alert": {"title": "Greeting", "body": "Hello there"}}}
    assert (arrived["id"], arrived["priority"]) == (sent, 5)
    assert 0 <= arrived["latency_ms"] < 60_000
    # It was acknowledged before the connection ended, so it is not stored any more.
    assert home.register()["pending"] == 0
    status, record = server.get(f"/v1/devices/{ready['device_id']}/messages/{sent}")
    assert (status, record["status"]) == (200, "delivered")


def test_a_message_is_shown_as_text(home: Home) -> None:
    token = home.register()["token"]
    (sent,) = home.send("--title=Greeting", "Hello")
    shown = home.run("device", "listen", "--exit-after=1")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Greeting — Hello\n" in shown.stdout
    assert f"id {sent}\n" in shown.stdout
    assert f"Token {token}\n" in shown.stdout
    assert "1 message waiting" in shown.stdout


def test_control_characters_do_not_reach_the_terminal(home: Home) -> None:
    home.register()
    home.send("--body", "red \x1b[31m and\nmore")
    shown = home.run("device", "listen", "--exit-after=1")
    assert "red  [31m and more\n" in shown.stdout


def test_missed_messages_arrive_when_the_device_reconnects(home: Home) -> None:
    ready = home.register()
    home.send("while away", "--count=2")
    shown = home.listen("--exit-after=2")
    assert shown[0] == {**ready, "pending": 2}
    assert bodies(shown) == ["while away (1 of 2)", "while away (2 of 2)"]


def test_messages_after_the_last_wanted_one_stay_stored(home: Home) -> None:
    home.register()
    home.send("one of", "--count=2")
    assert bodies(home.listen("--exit-after=1")) == ["one of (1 of 2)"]
    assert bodies(home.listen("--exit-after=1")) == ["one of (2 of 2)"]


def test_only_this_account_can_read_the_saved_device(home: Home) -> None:
    home.register()
    mode = (home.folder / "device-listen.json").stat().st_mode
    assert stat.S_IMODE(mode) == 0o600


def test_new_registers_and_saves_another_device(home: Home) -> None:
    first = home.register()
    with home.listening("--new") as listener:
        fresh = listener.next("ready")
    assert fresh["device_id"] != first["device_id"]
    assert home.register() == fresh


def test_token_and_secret_connect_a_device_from_another_folder(
    home: Home, server: ClarionServer, tmp_path: Path
) -> None:
    ready = home.register()
    home.send("over here")
    (known,) = json.loads((home.folder / "device-listen.json").read_bytes())["devices"]
    elsewhere = Home(tmp_path / "elsewhere", server)
    who = (f"--token={known['token']}", f"--secret={known['secret']}")
    shown = elsewhere.listen(*who, "--topic=news", "--exit-after=1")
    assert shown[0] == {**ready, "pending": 1}
    assert bodies(shown) == ["over here"]
    assert not (elsewhere.folder / "device-listen.json").exists()


@pytest.fixture
def other_server() -> Iterator[ClarionServer]:
    """Another server, whose gateway is on the port after its API."""
    server = ClarionServer()
    while not is_free(server.port + 1):
        server = ClarionServer()
    server.gateway_port = server.port + 1
    with server:
        yield server


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_with_url_the_device_is_that_of_the_other_server(
    home: Home, other_server: ClarionServer
) -> None:
    """It connects to the gateway of that server, and does not replace the saved device."""
    own = home.register()
    url = f"http://127.0.0.1:{other_server.port}"
    where = (f"--url={url}", f"--api-key={other_server.api_key}")
    with home.listening(*where) as listener:
        ready = listener.next("ready")
        assert other_server.get(f"/v1/devices/{ready['device_id']}")[0] == 200
        assert listener.interrupt() == 0
    with home.listening(*where) as listener:
        assert listener.next("ready") == ready
    assert home.register() == own


def test_many_devices_receive_from_a_topic(home: Home) -> None:
    with home.listening("--count=3", "--topic=news", "--exit-after=3") as listener:
        tokens = {listener.next("ready")["token"] for _ in range(3)}
        home.send("--topic=news", "extra", "--priority=5", "--ttl=60", "--collapse-id=x")
        arrived = [listener.next("notification") for _ in range(3)]
        assert listener.ended() == 0
    assert {each["token"] for each in arrived} == tokens
    assert {each["topic"] for each in arrived} == {"news"}
    assert bodies(arrived) == ["extra"] * 3


def test_what_is_published_reaches_the_devices_of_the_topic(home: Home) -> None:
    flags = ("--title=Nightly", "--priority=5", "--tags=tada,db", "--click=https://example.com/7")
    with home.listening("--topic=publish") as listener:
        listener.next("ready")
        done = home.run("publish", "publish", "Backup", "done", *flags)
        assert done.returncode == 0, done.stderr
        first = listener.next("notification")
        assert home.run("publish", "publish", typed="from a\npipe\n").returncode == 0
        second = listener.next("notification")
    message_id, _, event_id = done.stdout.partition("  accepted, event ")
    assert (first["id"], first["payload"]["event_id"]) == (message_id, event_id.strip())
    assert first["payload"]["aps"]["alert"] == {"title": "🎉 Nightly", "body": "Backup done"}
    assert first["payload"]["deeplink"] == "https://example.com/7"
    assert bodies([second]) == ["from a\npipe"]


def test_a_subscription_survives_a_reconnect(home: Home) -> None:
    with home.listening("--topic=weekly", "--topic=daily") as listener:
        listener.next("ready")
        assert listener.interrupt() == 0
    home.send("--topic=weekly", "missed")
    home.send("--topic=daily", "as well")
    assert sorted(bodies(home.listen("--exit-after=2"))) == ["as well", "missed"]


def test_many_devices_are_shown_as_one_line_of_statistics(home: Home) -> None:
    with home.listening("--count=3", "--topic=sums") as listener:
        for _ in range(3):
            listener.next("ready")
        assert listener.interrupt() == 0
    home.send("--topic=sums", "counted")
    shown = home.run("device", "listen", "--count=3", "--exit-after=3")
    assert shown.returncode == 0
    assert "3 of 3 devices connected, 3 received" in shown.stdout.splitlines()[-1]


def test_only_the_last_message_of_a_collapse_id_is_kept(home: Home) -> None:
    home.register()
    home.send("score", "--count=3", "--collapse-id=größe")
    shown = home.listen("--exit-after=1")
    assert shown[0]["pending"] == 1
    assert bodies(shown) == ["score (3 of 3)"]
    assert shown[1]["collapse_id"] == "größe"


def test_the_same_id_is_sent_once(home: Home) -> None:
    home.register()
    given = "01890a5d-ac96-774b-bcce-b302099a8057"
    assert home.send("once", f"--id={given}") == home.send("once", f"--id={given}") == [given]
    assert home.register()["pending"] == 1


def test_a_message_without_ttl_is_not_stored(home: Home) -> None:
    home.register()
    home.send("now or never", "--ttl=0")
    assert home.register()["pending"] == 0


def test_a_whole_payload_comes_from_a_file_or_the_standard_input(home: Home) -> None:
    home.register()
    payload = {"aps": {"content-available": 1}, "order": [1, 2]}
    file = home.folder / "payload.json"
    file.write_text(json.dumps(payload))
    home.send(f"--payload={file}")
    home.send("--payload", "-", typed=json.dumps(payload))
    assert [each["payload"] for each in home.listen("--exit-after=2")[1:]] == [payload] * 2


def test_the_plain_listener_takes_pushes_too(home: Home, server: ClarionServer) -> None:
    home.register()
    home.send("plain", f"--url=http://127.0.0.1:{server.port}")
    assert bodies(home.listen("--exit-after=1")) == ["plain"]


def test_a_device_reconnects_after_a_restart_of_the_server(
    home: Home, server: ClarionServer
) -> None:
    with home.listening("--exit-after=1") as listener:
        first = listener.next("ready")
        server.restart()
        assert listener.next("lost")["reason"] == "The server restarts."
        assert listener.next("ready") == first
        home.send("again")
        assert bodies([listener.next("notification")]) == ["again"]
        assert listener.ended() == 0


def test_a_device_reconnects_after_the_server_was_killed(home: Home, server: ClarionServer) -> None:
    with home.listening("--exit-after=1") as listener:
        first = listener.next("ready")
        server.kill()
        assert listener.next("lost")["reason"] == "The connection is lost."
        server.start()
        assert listener.next("ready") == first


def test_an_interrupt_stops_it_without_an_error(home: Home) -> None:
    with home.listening() as listener:
        listener.next("ready")
        assert listener.interrupt() == 0
        assert listener.errors() == ""


def test_a_replaced_connection_is_reported(home: Home) -> None:
    with home.listening() as first:
        first.next("ready")
        with home.listening() as second:
            second.next("ready")
            assert first.ended() == 1
            assert first.errors().startswith(
                "clarion: Another connection of the same device replaced this one."
            )


def test_the_rate_limit_of_a_device_is_reported(home: Home) -> None:
    home.register()
    done = home.run("send", "again and again", "--count=101")
    # A new minute may begin in between, with a new limit.
    if done.returncode == 0:
        done = home.run("send", "again and again", "--count=101")
    assert done.returncode == 1
    assert " of 101 messages were sent. " in done.stderr
    assert "TooManyRequests" in done.stderr


PORTS = {"{api}": "port", "{tls}": "tls_port", "{gateway}": "gateway_port"}


@pytest.mark.parametrize(
    ("line", "code", "sentence"),
    [
        (
            "device listen --url=http://127.0.0.1:1",
            1,
            "No server is listening at http://127.0.0.1:1",
        ),
        (
            "device listen --gateway-url=ws://127.0.0.1:1",
            1,
            "No server is listening at ws://127.0.0.1:1",
        ),
        ("device listen --url=http://127.0.0.1:{gateway}", 1, "Is it the right port for --url?"),
        ("device listen --url=https://127.0.0.1:{api}", 1, "The TLS handshake with"),
        ("device listen --gateway-url=ws://127.0.0.1:{api}", 1, "right port for --gateway-url?"),
        ("device listen --gateway-url=ws://127.0.0.1:{tls}", 1, "right port for --gateway-url?"),
        ("device listen --url=http://127.0.0.1:65535", 1, "No server is listening at"),
        ("device listen --api-key=ck_no_key", 1, "rejected the API key"),
        ("device listen --topic=no/topic", 2, "--topic: must not contain a /"),
        (f"device listen --token={NO_DEVICE} --secret=no", 1, "does not know this device"),
        ("device listen --token=alone", 2, "give both or neither"),
        ("device listen --url=nonsense", 2, "must be like http://127.0.0.1:8080"),
        ("device listen --gateway-url=nonsense", 2, "must be like ws://127.0.0.1:8081"),
        ("device listen --gateway-listen=off", 2, "--gateway-url"),
        ("device listen --count=0", 2, "--count"),
        ("device listen --nonsense=1", 2, "--nonsense: there is no such setting"),
        (f"send hi --to={NO_DEVICE}", 1, "No device of this app has this token. "),
        ("send hi --to=a/b", 2, "--to: must not contain a /"),
        (
            f"send hi --to={NO_DEVICE} --url=http://127.0.0.1:{{gateway}}",
            1,
            "not like an APNs endpoint",
        ),
        (f"send hi --to={NO_DEVICE} --id=no-uuid", 1, "--id must be a UUID"),
        ("send --topic=news --api-key=ck_no_key hi", 1, "rejected the API key"),
        ("send --topic=no!topic hi", 1, "topic: must have 1 to 200 letters"),
        ("send hi", 2, "There is no device to send to yet."),
        ("send", 2, "Give a text to send"),
        ("send hi --priority=7", 2, "Choose from: 10, 5, 1."),
        ("send hi --payload=file", 2, "leave out the text"),
        ("send --payload=/no/such/file", 2, "cannot read /no/such/file"),
        ("send hi --topic=news --to=token", 2, "give only one of them"),
        ("publish news hi --priority=9", 1, "priority: must be 1 to 5"),
        ("publish news hi --click=javascript:1", 1, "click: must not be a javascript: link"),
        ("publish no!topic hi", 1, "topic: must have 1 to 200 letters"),
        ("publish a/b hi", 2, "TOPIC: must not contain a /"),
        ("publish news hi --api-key=ck_no_key", 1, "rejected the API key"),
        ("publish news hi --url=http://127.0.0.1:1", 1, "No server is listening"),
        ("publish", 2, "TOPIC"),
    ],
)
def test_an_error_is_one_line(
    home: Home, server: ClarionServer, line: str, code: int, sentence: str
) -> None:
    for name, attribute in PORTS.items():
        line = line.replace(name, str(getattr(server, attribute)))
    done = home.run(*line.split(" "))
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("clarion: ")
    assert done.stderr.count("\n") == 1
    assert sentence in done.stderr


def test_without_keys_the_error_names_init(tmp_path: Path) -> None:
    command = [*CLARION, "device", "listen", f"--data={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "`clarion init` creates it" in done.stderr

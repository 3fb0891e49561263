"""Logs: one JSON object a line, at the level that was set, on standard error."""

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest
import structlog

from clarion.telemetry import logs, traces
from clarion.telemetry.logs import configure, get_logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def test_a_line_is_one_write_with_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines of several processes would mix otherwise."""

    class Writes(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    written: list[str] = []
    monkeypatch.setattr("sys.stderr", Writes())
    configure("info", "json")
    get_logger().info("ready")
    (line,) = written
    assert line.endswith("}\n")


def test_a_line_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    get_logger().info("ready", server_id="node-1")
    out, err = capsys.readouterr()
    line = json.loads(err)
    assert out == ""
    assert (line["event"], line["server_id"], line["level"]) == ("ready", "node-1", "info")
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_what_is_below_the_level_is_not_logged(
    capsys: pytest.CaptureFixture[str], level: str, expected: list[str]
) -> None:
    configure(level, "json")
    for each in ("debug", "info", "warning", "error"):
        getattr(get_logger(), each)("event")
    assert [json.loads(line)["level"] for line in capsys.readouterr().err.splitlines()] == expected


def test_an_exception_is_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "json")
    get_logger().error("failed", exc_info=ValueError("what went wrong"))
    assert "what went wrong" in json.loads(capsys.readouterr().err)["exception"]


def test_away_from_a_terminal_auto_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "auto")
    get_logger().info("ready")
    assert json.loads(capsys.readouterr().err)["event"] == "ready"


def test_the_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "console")
    get_logger().info("ready")
    line = capsys.readouterr().err
    assert "ready" in line
    assert not line.startswith("{")


HOSTILE = "/v1/\x1b[2J\r\n2026-01-01[info]ready\x9b31m\u202e\u2028\x00\x7f"


@pytest.mark.parametrize("log_format", ["console", "json"])
def test_what_a_stranger_sent_cannot_move_the_cursor_or_add_a_line(
    capsys: pytest.CaptureFixture[str], log_format: str
) -> None:
    configure("info", log_format)
    # structlog itself escapes a text with a blank in it, and no other.
    parts = {f"part_{number}": f"/é{part}/" for number, part in enumerate(HOSTILE.split("/"))}
    get_logger().warning("request", whole=HOSTILE, clear="\x1b[2J\x9b31m\u202e\x00\x7f", **parts)
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert not (set(written) & set("\r\x00\x7f\x9b\u202e\u2028"))
    assert "\x1b[2J" not in written
    assert log_format == "json" or "é" in written


def test_what_a_stranger_sent_cannot_forge_a_line_in_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", "console")
    try:
        int(HOSTILE)
    except ValueError:
        get_logger().exception("request_failed")
    lines = capsys.readouterr().err.splitlines()
    assert "request_failed" in lines[0]
    assert all(line.startswith("  ") for line in lines[1:])
    assert not any("\x1b[2J" in line for line in lines)


TRACEPARENT = {b"traceparent": f"00-{'a' * 32}-{'1' * 16}-01".encode()}


def log_in_context(
    capsys: pytest.CaptureFixture[str], *, event_id: str | None = None, is_answered: bool = False
) -> Any:
    """Log in a task of its own, which handles a request or works on an event."""

    def work() -> None:
        logs.request.set(logs.Handled("r-1", TRACEPARENT))
        logs.event_id.set(event_id)
        if is_answered:
            logs.end_request()
        traces.stored.set({"e-1": f"00-{'b' * 32}-{'2' * 16}-01"})
        get_logger().warning("happened", own="field")

    configure("info", "json")
    copy_context().run(work)
    return json.loads(capsys.readouterr().err)


def test_a_line_has_the_ids_of_the_request_that_is_handled(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = log_in_context(capsys)
    assert (line["request_id"], line["trace_id"], line["own"]) == ("r-1", "a" * 32, "field")
    assert "event_id" not in line


def test_a_line_after_the_response_is_not_about_the_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = log_in_context(capsys, is_answered=True)
    assert {"request_id", "trace_id", "event_id"} & set(line) == set()


def test_a_line_about_the_work_on_an_event_has_its_ids(capsys: pytest.CaptureFixture[str]) -> None:
    line = log_in_context(capsys, event_id="e-1", is_answered=True)
    assert (line["event_id"], line["trace_id"]) == ("e-1", "b" * 32)


def test_warnings_of_libraries_are_lines_of_ours_and_few(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure("info", "json")
    log = logs.LibraryLog()
    for number in range(50):
        record = logging.LogRecord("lib.part", logging.WARNING, "", 0, "no %d", (number,), None)
        log.handle(record)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in lines] == [f"no {number}" for number in range(10)]
    assert {(line["event"], line["library"]) for line in lines} == {("library_warning", "lib.part")}


UNCAUGHT = """
import asyncio, sys, threading
from clarion.telemetry.logs import configure, log_uncaught

class Failing:
    def __del__(self):
        raise BrokenPipeError("while freed")

def fail():
    raise BrokenPipeError("in a thread")

configure("info", "json")
log_uncaught()
Failing()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
raise BrokenPipeError("at last")
"""


def test_what_nobody_catches_is_a_line_as_well() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNCAUGHT], capture_output=True, text=True, check=False
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["uncaught"] * 3
    ends = [line["exception"].splitlines()[-1] for line in lines]
    assert ends == [f"BrokenPipeError: {x}" for x in ("while freed", "in a thread", "at last")]
    assert done.returncode == 1

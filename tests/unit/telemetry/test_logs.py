"""Logs: one JSON object a line, at the level that was set, on standard error."""

import json
from collections.abc import Iterator

import pytest
import structlog

from clarion.telemetry.logs import configure, get_logger


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    structlog.reset_defaults()


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

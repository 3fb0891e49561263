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

"""The context of W3C in headers, and when there are traces at all."""

import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from clarion.telemetry import traces
from clarion.telemetry.trace_settings import find_exporter, open_tracer
from clarion.telemetry.traces import OFF, StepKind, entered, make_headers, read_context

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
NAMES = (
    "OTEL_SDK_DISABLED",
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
)
ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}
NOT_IMPORTED = """
import sys
import clarion.app.routes, clarion.app.server, clarion.cli.main
from clarion.telemetry.trace_settings import open_tracer
assert not open_tracer("n").is_on
print(sorted(name for name in sys.modules if name.partition(".")[0] == "opentelemetry"))
"""
NOT_INSTALLED = """
import sys
sys.modules["opentelemetry"] = None
from clarion.telemetry.trace_settings import open_tracer
assert not open_tracer("n").is_on
"""


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (PARENT, PARENT),
        (f"00-{TRACE}-{SPAN}-00", f"00-{TRACE}-{SPAN}-00"),
        (f"00-{TRACE}-{SPAN}-ff", PARENT),  # of the flags only the first is known
        (f"cc-{TRACE}-{SPAN}-01-what-will-be", PARENT),  # a later version
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        (f"00-{TRACE}-{SPAN}-01\n", None),
        ("", None),
        ("\xff" * 55, None),
    ],
)
def test_a_context_is_taken_from_a_valid_header_only(given: str, expected: str | None) -> None:
    assert read_context({b"traceparent": given.encode("latin-1")}) == expected


@pytest.mark.parametrize(
    ("state", "is_kept"),
    [
        (b"a=1,b=2", True),
        (b" a=1 , b=2 ", True),
        (b"", False),
        (b"a=" + b"x" * 511, False),
        (b"a=1\r\nset-cookie: x", False),
        (b"a=\xff", False),
    ],
)
def test_the_state_of_vendors_is_kept_if_a_header_can_hold_it(
    state: bytes, *, is_kept: bool
) -> None:
    context = read_context({b"traceparent": PARENT.encode(), b"tracestate": state})
    assert context == (f"{PARENT} {state.strip().decode()}" if is_kept else PARENT)
    assert read_context({b"tracestate": state}) is None


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        (ENDPOINT, "otlp"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x"}, "otlp"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "otlp"),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}, None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "false"}, "otlp"),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "otlp"),
    ],
)
def test_the_environment_says_whether_there_are_traces(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_exporter() == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_TRACES_EXPORTER", "zipkin"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
)
def test_what_we_do_not_speak_is_logged_and_leaves_traces_off(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with capture_logs() as lines:
        assert open_tracer("node-1") is OFF
    assert [(each["event"], name in each["reason"]) for each in lines] == [
        ("traces_unavailable", True)
    ]


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables
    )


def test_without_configuration_nothing_of_opentelemetry_is_imported() -> None:
    assert run(NOT_IMPORTED).stdout.strip() == "[]"


def test_without_the_extra_the_server_says_what_to_install() -> None:
    assert "pip install 'clarion[otel]'" in run(NOT_INSTALLED, **ENDPOINT).stdout


def test_off_records_nothing_and_sends_no_header() -> None:
    span = OFF.start("step", PARENT, StepKind.CONSUMER, {"a": 1}, age_ms=5)
    span.set({"b": 2})
    span.fail("Error")
    span.end()
    assert (OFF.is_on, traces.current.get(), traces.find_context()) == (False, None, None)
    assert make_headers() == {}


class Step:
    """A span that notes what is done with it."""

    def __init__(self, context: str) -> None:
        self.context = context
        self.notes: list[object] = []

    def start(
        self,
        name: str,
        kind: StepKind = StepKind.INTERNAL,
        attributes: traces.Attributes = traces.NONE,
    ) -> traces.Span:
        raise NotImplementedError

    def rename(self, name: str) -> None:
        self.notes.append(name)

    def set(self, attributes: traces.Attributes) -> None:
        self.notes.append(attributes)

    def fail(self, error: str) -> None:
        self.notes.append(error)

    def end(self) -> None:
        self.notes.append("ended")


def test_a_step_ends_with_its_block_and_notes_the_type_of_an_error_alone() -> None:
    step = Step(f"{PARENT} a=1")

    def work() -> None:
        assert traces.find_context() == step.context
        assert make_headers() == {"traceparent": PARENT, "tracestate": "a=1"}
        raise ValueError("a text that nobody may see")

    with pytest.raises(ValueError, match="nobody"), entered(step):
        work()
    assert step.notes == ["ValueError", "ended"]
    assert traces.current.get() is None

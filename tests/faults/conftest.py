"""What the fault tests share: a quick place for files, and the figures at the end of the run."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.installation import Installation
from tests.faults.http.server import Target

FIGURES = "figures"
IN_MEMORY = Path("/dev/shm")  # noqa: S108 - only a folder of our own is made in it


@pytest.fixture
def scratch(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where the system has one: crashed disks are rebuilt there by thousands.

    Nothing tested here rests on that disk; what it would have kept is worked out by `Disk`.
    """
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server for hostile clients; at the end it must stop as if nothing had been."""
    installation = Installation(tmp_path_factory.mktemp("target"), requests_per_minute="100000000")
    installation.is_flooded = True
    first = installation.initialise()
    with installation:
        yield Target(installation, first["app"]["api_key"])


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Add a line of figures to the summary of the run; call it before the assertion about them."""
    return lambda line: record_property(FIGURES, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lines = [
        str(line)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, line in report.user_properties
        if name == FIGURES
    ]
    if lines:
        terminalreporter.section("figures")
        terminalreporter.write_line("\n".join(lines))

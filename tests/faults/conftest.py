"""The figures of a fault test: printed at the end of the run, whether it passed or not."""

from collections.abc import Callable

import pytest

FIGURES = "figures"


@pytest.fixture
def figures(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Give the run a line of figures; call it before the assertion that they are for."""
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

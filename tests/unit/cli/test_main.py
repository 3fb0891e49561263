"""The command line as a function: arguments in, exit code and error lines out."""

import pytest

from clarion.cli.main import main


@pytest.mark.parametrize(
    "line", ["cook", "app cook", "serve now", "serve --data", "app create", "-x"]
)
def test_a_command_that_cannot_be_parsed_is_one_error_line(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("clarion: ")
    assert shown.err.count("\n") == 1


def test_every_fault_of_the_settings_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--listen=nowhere", "--lissten=x"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("clarion: --lissten: there is no such setting")
    assert second.startswith("clarion: --listen: must be host:port")

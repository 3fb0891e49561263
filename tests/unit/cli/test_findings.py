"""The checklist of `clarion doctor`."""

import pytest

from clarion.cli.findings import Finding, fault, note, ok, print_findings, read_error
from clarion.cli.printing import count_entries
from clarion.errors import StartError, count


@pytest.mark.parametrize(
    ("findings", "summary"),
    [
        ({"disk": ok("much")}, "Everything is in order."),
        ({"disk": ok("much"), "keys": note("none", "Make some.")}, "Nothing is wrong; 1 note."),
        (
            {"disk": fault("full", "Free some."), "redis": fault("away", "Start it.")},
            "2 faults. Fix the faults from the top: one may cause others.",
        ),
        (
            {"disk": fault("full", "Free some."), "keys": note("none", "Make some.")},
            "1 fault and 1 note. Fix the faults from the top: one may cause others.",
        ),
    ],
)
def test_the_last_line_says_how_it_is(
    findings: dict[str, Finding], summary: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_findings(findings)
    assert capsys.readouterr().out.endswith(f"\n\n{summary}\n")


def test_what_to_do_is_below_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    print_findings({"audit log": fault("it was changed", "Look who did it.", "Restore it.")})
    assert capsys.readouterr().out.splitlines()[:3] == [
        "fault  audit log    it was changed",
        "                    → Look who did it.",
        "                    → Restore it.",
    ]


def test_a_long_step_is_wrapped_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    print_findings({"disk": fault("full", "word " * 20)})
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[2].startswith(" " * 22 + "word")


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("It is away. Start it.", fault("It is away", "Start it.")),
        ("It is away.", fault("It is away", "otherwise")),
        ("It is away.\nStart it.\nOr do not.", fault("It is away", "Start it.", "Or do not.")),
    ],
)
def test_an_error_says_what_to_do_in_its_second_sentence(text: str, finding: Finding) -> None:
    assert read_error(StartError(text), "otherwise") == finding


def test_numbers_have_their_noun() -> None:
    assert [count(n, "row") for n in (0, 1, 2_000)] == ["0 rows", "1 row", "2,000 rows"]
    assert count(2, "primary", "primaries") == "2 primaries"
    assert count_entries(1) == "1 entry, as it was written"
    assert count_entries(6) == "6 entries, all as they were written"

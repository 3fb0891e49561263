"""What `clarion doctor` printed: a line for each check, and below it what to do."""

import subprocess

STEP = " " * 20 + "→ "


def read_checklist(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Return state and detail by what was checked; the steps follow the detail, each behind →."""
    assert "Traceback" not in done.stderr, done.stderr
    found: dict[str, tuple[str, str]] = {}
    *lines, empty, summary = done.stdout.splitlines()
    assert (empty, summary[-1]) == ("", ".")
    what = ""
    for line in lines:
        if line.startswith(STEP):
            state, detail = found[what]
            found[what] = state, f"{detail} → {line.removeprefix(STEP)}"
        else:
            what = line[7:19].strip()
            found[what] = line[:6].strip(), line[20:]
    for what, (state, detail) in found.items():
        assert state in {"ok", "note", "fault"}, (what, state)
        assert state == "ok" or " → " in detail, f"{what}: not said what to do"
    return found

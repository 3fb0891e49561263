"""The unit of systemd, and the proxies in front of a real server."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import read_blocks
from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import wait_until
from tests.ops.operations import OPS
from tests.ops.proxies import run_proxy
from tests.programs import find_program

pytestmark = pytest.mark.timeout(300)
UNIT = OPS / "systemd" / "clarion.service"
# Of 10; systemd calls up to 2 "OK".
EXPOSURE_LIMIT = 2.0


def test_the_page_shows_the_unit() -> None:
    blocks = read_blocks("docs/how-to/deploy.md")
    assert [each.text for each in blocks if each.title == UNIT.name] == [UNIT.read_text()]


def test_the_unit_exposes_little(capsys: pytest.CaptureFixture[str]) -> None:
    command = [find_program("systemd-analyze", "systemd"), "security", "--offline=true", str(UNIT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for clarion\.service: (\d+\.\d)", done.stdout)
    assert found, done.stdout + done.stderr
    with capsys.disabled():
        print(f"\nexposure level of the unit: {found[1]} of 10")  # noqa: T201 - a figure to be seen
    assert float(found[1]) <= EXPOSURE_LIMIT


def verify(text: str, folder: Path) -> list[str]:
    """Return what systemd has to say of a unit; its program is one that is there."""
    unit = folder / UNIT.name
    unit.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
    command = [find_program("systemd-analyze", "systemd"), "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stderr.splitlines() if UNIT.name in line]


def test_systemd_knows_everything_in_the_unit(tmp_path: Path) -> None:
    assert verify(UNIT.read_text(), tmp_path) == []


def test_a_fault_of_a_unit_is_found(tmp_path: Path) -> None:
    text = UNIT.read_text().replace("ProtectHome=yes", "ProtectHouse=yes")
    (line,) = verify(text, tmp_path)
    assert "ProtectHouse" in line


def test_haproxy_accepts_its_configuration() -> None:
    program = find_program("haproxy", "haproxy")
    command = [program, "-c", "-q", "-f", f"{OPS}/proxies/haproxy.cfg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_caddy_accepts_its_configuration() -> None:
    program = find_program("caddy", "caddy")
    command = [program, "validate", "--adapter=caddyfile", f"--config={OPS}/proxies/Caddyfile"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_server_is_reached_through_haproxy_and_taken_out_when_it_stops(tmp_path: Path) -> None:
    installation = Installation(tmp_path, drain_s="5")
    installation.initialise()
    installation.start()
    try:
        with run_proxy("haproxy", tmp_path, installation) as proxy:
            asker = Asker(proxy.plain)
            assert asker.get("/v1/keys").status == 401
            assert installation.process is not None
            installation.process.terminate()
            # It still serves, but is not ready: HAProxy answers that there is nobody.
            wait_until(lambda: asker.get("/ready").status == 503 or None)
    finally:
        installation.stop()


def test_a_server_that_drains_serves_and_is_not_ready(tmp_path: Path) -> None:
    installation = Installation(tmp_path, drain_s="5")
    installation.initialise()
    installation.start()
    try:
        asker = Asker(installation.port)
        assert asker.get("/ready").json["stopping"] is False
        assert installation.process is not None
        installation.process.terminate()
        wait_until(lambda: asker.get("/ready").status == 503 or None)
        assert asker.get("/ready").json["stopping"] is True
        assert asker.get("/v1/keys").status == 401
        assert (asker.get("/live").status, asker.get("/health").status) == (200, 200)
    finally:
        installation.stop()

"""What the guides give to systemd and nginx, run without them changing this machine."""

import configparser
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import read_blocks
from tests.docs.reader import Clone, Reader
from tests.processes import free_port
from tests.programs import find_program

pytestmark = pytest.mark.timeout(400)


def read_file(page: str, title: str) -> str:
    (found,) = [block.text for block in read_blocks(page) if block.title == title]
    return found


@pytest.fixture
def unit(folder: Path) -> str:
    """The unit of systemd, with the places of a reader."""
    text = read_file("docs/how-to/deploy.md", "clarion.service")
    text = text.replace("/opt/clarion", str(folder)).replace("/etc/clarion", str(folder))
    return text.replace("/var/lib/clarion", str(folder / "data"))


@pytest.fixture
def reader(unit: str, clone: Clone, data: Path, folder: Path) -> Iterator[Reader]:
    """A reader whose server runs by the command of the unit."""
    shutil.copytree(data, folder / "data")
    settings = read_file("docs/how-to/deploy.md", "clarion.toml")
    settings = settings.replace("/var/lib/clarion", str(folder / "data"))
    (folder / "clarion.toml").write_text(settings)
    # systemd allows a setting several times.
    parser = configparser.ConfigParser(strict=False)
    parser.read_string(unit)
    with Reader(clone, folder.parent, {}) as reader:
        reader.start_server(f"exec {parser['Service']['ExecStart']}")
        yield reader


def test_the_command_of_the_unit_starts_a_server(reader: Reader) -> None:
    assert reader.is_ready()


def test_systemd_understands_the_unit(unit: str, tmp_path: Path) -> None:
    program = find_program("systemd-analyze", "systemd")
    # The account of the unit is not on this machine.
    (tmp_path / "clarion.service").write_text(unit.replace("User=clarion", "User=root"))
    done = subprocess.run(
        [program, "verify", "--man=no", str(tmp_path / "clarion.service")],
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [line for line in done.stderr.splitlines() if "clarion.service" in line]
    assert (done.returncode, faults) == (0, [])


def test_a_device_and_the_api_are_reached_through_nginx(
    reader: Reader, data: Path, folder: Path
) -> None:
    program = find_program("nginx", "nginx-light")
    plain, tls = free_port(), free_port()
    configuration = read_file("docs/how-to/behind-a-proxy.md", "clarion.conf")
    live = "/etc/letsencrypt/live/notify.example.com"
    for old, new in {
        "127.0.0.1:8080": f"127.0.0.1:{reader.port}",
        "127.0.0.1:8081": f"127.0.0.1:{reader.gateway_port}",
        "listen 80;": f"listen 127.0.0.1:{plain};",
        "listen 443 ssl": f"listen 127.0.0.1:{tls} ssl",
        f"{live}/fullchain.pem": str(data / "tls" / "server.pem"),
        f"{live}/privkey.pem": str(data / "tls" / "server.key"),
    }.items():
        assert old in configuration
        configuration = configuration.replace(old, new)
    paths = [
        f"{name}_temp_path {folder / name};"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    ]
    whole = f"http {{ access_log off; {' '.join(paths)} {configuration} }}"
    (folder / "nginx.conf").write_text(f"daemon off; pid {folder}/pid; events {{}} {whole}")
    with ExitStack() as stack:
        nginx = stack.enter_context(
            subprocess.Popen([program, "-p", folder, "-c", "nginx.conf", "-e", folder / "errors"])
        )
        stack.callback(nginx.terminate)
        listen = f"clarion device listen --url https://localhost:{tls}"
        reader.run(
            'eval "$(.venv/bin/clarion env)"\n'
            f"until curl -s --cacert data/tls/ca.pem https://localhost:{tls}/ready; do :; done\n"
            f"{listen} --topic proxied --json --exit-after 1 > received.txt &\n"
            "until grep -q ready received.txt; do sleep 0.1; done\n"
            "clarion send --topic proxied Hello\n"
            "wait $!\n"
            "cat received.txt"
        )
    assert '"body":"Hello"' in reader.printed

"""A release: what is built installs and runs without the repository."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.asking import Asker
from tests.e2e.installation import Installation
from tests.e2e.sending import draft, inbox, make_type, make_user, send_and_wait
from tests.node import find_node
from tools.sbom import UnknownLine, make_sbom, read_lock

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).with_name("uv")
LIMIT_S = 300
# A page of each kind that is not Python: templates, scripts, style sheets, the API document.
PAGES = {
    "/docs": "text/html",
    "/docs/errors": "text/html",
    "/docs/how-to/inbox": "text/html",
    "/docs/images/bell.png": "image/png",
    "/openapi.json": "application/vnd.oai.openapi+json",
    "/demo": "text/html",
    "/static/clarion-inbox.js": "text/javascript",
    "/admin/sign-in": "text/html",
}
# Imports every module and prints the help of every command. Only an extra may be missing.
USE_EVERYTHING = """
import importlib, pkgutil
import clarion
from clarion.cli.main import app, main

def show_help(command, *names):
    assert main([*names, "--help"]) == 0, names
    for name in command:
        if not name.startswith("-"):
            show_help(command[name], *names, name)

for each in pkgutil.walk_packages(clarion.__path__, "clarion."):
    try:
        importlib.import_module(each.name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in ("apprise", "opentelemetry"):
            raise
show_help(app)
"""
# Sends an event and reads the inbox, with nothing but the client.
USE_PYTHON = """
import sys
from clarion_client import Clarion, Inbox, sign_user_token

url, key, app_id, secret = sys.argv[1:]
with Clarion(url, api_key=key) as clarion:
    clarion.put_user("ana", {})
    event = clarion.send("POST_LIKE", to="ana", actor={"id": "ben", "name": "Ben"})
with Inbox(url, token=sign_user_token(app_id=app_id, user_id="ana", secret=secret)) as inbox:
    for update in inbox.updates():
        if update.type == "notification" or update.unread_count:
            break
    print(event.status, inbox.list().unread_count)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"clarion", "jwt"}))
"""
# What a type checker sees of it; a type that is lost would be `Any`.
TYPED = """
from typing import assert_type
from clarion_client import AcceptedEvent, AsyncClarion, Clarion, Inbox, Notification, Published

def send(clarion: Clarion) -> Published:
    assert_type(clarion.send("POST_LIKE", to="ana"), AcceptedEvent)
    return clarion.publish("backups", "done")

async def read(clarion: AsyncClarion, inbox: Inbox) -> list[Notification | None]:
    assert_type(await clarion.send("POST_LIKE", to=["ana"]), AcceptedEvent)
    return [update.item for update in inbox.updates()]
"""
USE_JAVASCRIPT = """
import { Clarion, Inbox, signUserToken } from "@clarion/client";

const [url, apiKey, appId, secret] = process.argv.slice(2);
const clarion = new Clarion({ url, apiKey });
await clarion.putUser("bea", {});
const event = await clarion.send({ type: "POST_LIKE", recipient: { user_id: "bea" } });
const inbox = new Inbox({ url, token: () => signUserToken({ appId, userId: "bea", secret }) });
for await (const update of inbox.updates()) if (update.unread_count) break;
console.log(event.status, (await inbox.list()).unread_count);
console.log(import.meta.resolve("@clarion/client/inbox").split("/").at(-1));
"""
pytestmark = [
    pytest.mark.timeout(2 * LIMIT_S),
    pytest.mark.rest("builds the release and installs it"),
]


def run(*command: str | Path) -> str:
    # With the caller's, the installed program would run this folder and not itself.
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(each) for each in command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a release."""
    folder = tmp_path_factory.mktemp("release") / "dist"
    run(sys.executable, ROOT / "tools" / "release.py", folder)
    return folder


@pytest.fixture(scope="module")
def clarion(dist: Path) -> Path:
    """The program as it is installed from the wheel, with the versions of its lock file."""
    (wheel,) = dist.glob("clarion-*.whl")
    python = make_venv(dist.parent / "venv")
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", python]
    # Compiled, or the first import of a module would hold the event loop.
    install.append("--compile-bytecode")
    run(
        *install,
        "--no-deps",
        "--require-hashes",
        "--only-binary",
        ":all:",
        "-r",
        dist / "requirements.lock",
    )
    run(*install, "--no-deps", wheel)
    return python.with_name("clarion")


def make_venv(folder: Path) -> Path:
    """Return the Python of an empty environment."""
    run(UV, "venv", "--quiet", "--python", sys.executable, folder)
    return folder / "bin" / "python"


@pytest.fixture
def installation(clarion: Path, tmp_path: Path) -> Installation:
    made = Installation(tmp_path, demo="on")
    # In place of the Python of the tests and `-m clarion`.
    made.under = ["sh", "-c", f'cd /; shift 3; exec "{clarion}" "$@"', "sh"]
    return made


def test_the_wheel_runs_without_the_repository(installation: Installation) -> None:
    first = installation.initialise()
    with installation:
        app = Asker(installation.port, first["app"]["api_key"])
        user_id = make_user(app)
        send_and_wait(app, draft(make_type(app), user_id=user_id))
        assert [item["body"] for item in inbox(app, user_id)] == ["A-7 is ready"]
        for path, kind in PAGES.items():
            answer = Asker(installation.port).get(path)
            assert (answer.status, answer.headers["content-type"].split(";")[0]) == (200, kind)
        for asset in re.findall(r'(?:src|href)="(/[^"]+\.(?:js|css|svg))', sign_in(installation)):
            assert Asker(installation.port).get(asset).status == 200
    assert "fault" not in installation.run("doctor").stdout


def sign_in(installation: Installation) -> str:
    page = Asker(installation.port).get("/admin/sign-in").body.decode()
    assert "/admin/static/" in page
    return page


def test_the_lock_file_has_every_package_that_is_imported(clarion: Path) -> None:
    """`tools/lock.py` leaves some out that others say they need."""
    printed = run(clarion.with_name("python"), "-c", USE_EVERYTHING)
    assert printed.count("Usage: clarion ") > len(list((ROOT / "src/clarion/cli").glob("*.py")))


def test_the_wheel_says_what_it_was_built_from(clarion: Path) -> None:
    found = json.loads(run(clarion, "version", "--json"))
    assert found["version"] == project()["version"]
    commit = run("git", "-C", ROOT, "rev-parse", "HEAD").strip()
    assert found["commit"].removesuffix(" with changes") == commit


def given_to_clients(installation: Installation, first: dict[str, Any]) -> list[str]:
    app = first["app"]
    url = f"http://127.0.0.1:{installation.port}"
    return [url, app["api_key"], app["id"], app["user_secret"]]


def test_the_python_client_needs_two_packages_and_nothing_of_the_server(
    dist: Path, installation: Installation, tmp_path: Path
) -> None:
    (wheel,) = dist.glob("clarion_client-*.whl")
    python = make_venv(tmp_path / "venv")
    run(UV, "pip", "install", "--quiet", "--python", python, wheel)
    packages = json.loads(run(UV, "pip", "list", "--format=json", "--python", python))
    assert {each["name"] for each in packages} == {"clarion-client", "msgspec", "pyreqwest"}
    (tmp_path / "use.py").write_text(TYPED)
    options = ["--strict", f"--python-executable={python}", f"--cache-dir={tmp_path / 'cache'}"]
    run(sys.executable, "-m", "mypy", *options, tmp_path / "use.py")
    first = installation.initialise()
    with installation:
        printed = run(python, "-c", USE_PYTHON, *given_to_clients(installation, first))
    assert printed.splitlines() == ["pending 1", "[]"]


def test_the_javascript_client_is_installed_from_its_tarball(
    dist: Path, installation: Installation, tmp_path: Path
) -> None:
    (tarball,) = dist.glob("clarion-client-*.tgz")
    node, script = find_node(), tmp_path / "use.mjs"
    script.write_text(USE_JAVASCRIPT)
    options = ["--offline", "--no-audit", "--no-fund"]
    run(*node.npm, "install", *options, f"--prefix={tmp_path}", tarball)
    assert {
        path.name for path in (tmp_path / "node_modules" / "@clarion" / "client").iterdir()
    } == {
        "LICENSE",
        "README.md",
        "package.json",
        *(f"{name}.{kind}" for name in ("clarion", "clarion-inbox") for kind in ("js", "d.ts")),
    }
    first = installation.initialise()
    with installation:
        printed = run(node.node, script, *given_to_clients(installation, first))
    assert printed.splitlines() == ["pending 1", "clarion-inbox.js"]


def test_the_sdist_has_what_it_needs_and_no_more(dist: Path) -> None:
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/clarion/build.json", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
    assert {name.partition("/")[0] for name in names} & {"tests", "bench", "docs", ".git"} == set()


def test_the_checksums_and_the_notes_are_those_of_the_release(dist: Path) -> None:
    lines = (dist / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = [path for path in dist.iterdir() if path.name != "SHA256SUMS"]
    assert {path.suffix for path in files} >= {".whl", ".gz", ".tgz"}
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    notes = (dist / f"clarion-{project()['version']}.md").read_text()
    section = (ROOT / "CHANGELOG.md").read_text().partition(f"\n## {project()['version']} ")[2]
    assert len(notes) > 1_000
    assert notes.strip() in section
    assert "\n## " not in notes


def test_the_sbom_has_what_the_lock_file_pins(dist: Path) -> None:
    (path,) = dist.glob("*.cdx.json")
    sbom = json.loads(path.read_bytes())
    lock = (ROOT / "requirements.lock").read_text()
    pinned = set(re.findall(r"^([\w.-]+)(?:\[.+?\])?==([^ ;\\]+)", lock, re.MULTILINE))
    assert {(each["name"], each["version"]) for each in sbom["components"]} == pinned
    assert all(each["hashes"] for each in sbom["components"])
    refs = {each["bom-ref"] for each in sbom["components"]}
    root, *others = sbom["dependencies"]
    needed = {name for each in sbom["dependencies"] for name in each["dependsOn"]}
    assert needed == refs == {each["ref"] for each in others}
    direct = {re.split(r"[\[<>=~ ]", each)[0].lower() for each in project()["dependencies"]}
    assert {ref.partition("pypi/")[2].partition("@")[0] for ref in root["dependsOn"]} == direct


def test_the_sbom_refuses_a_line_that_it_does_not_understand() -> None:
    with pytest.raises(UnknownLine):
        read_lock("apsw==1\n-e ./elsewhere\n")
    assert make_sbom(project(), "")["components"] == []


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found

"""The files of the guide for Next.js: TypeScript reads all, and Node runs those of the server.

Next.js itself is not installed for that: a route handler and a server action are functions.
"""

import json
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, read_blocks
from tests.e2e.conftest import Server
from tests.e2e.sending import wait_until
from tests.node import find_node, install

PACKAGES = ROOT / "tests" / "clients" / "node"
READ = """
import ts from "typescript";

const compilerOptions = { jsx: "react-jsx", target: "es2022", module: "esnext" };
const options = { compilerOptions, reportDiagnostics: true, fileName: "snippet.jsx" };
const faults = JSON.parse(process.argv[1]).flatMap(
  (text) => ts.transpileModule(text, options).diagnostics,
);
console.log(JSON.stringify(faults.map((each) => each.messageText)));
"""
# In place of Auth.js.
SESSION = """
export const currentUser = async () => globalThis.user;
"""
RUN = """
import { addComment } from "./app/actions.js";
import { GET } from "./app/clarion-token/route.js";
import { saveUser } from "./lib/clarion.js";

const refused = await GET();
globalThis.user = { id: "nia", name: "Nia" };
await saveUser({ id: "nia", name: "Nia", email: "nia@next.example" });
await addComment({ id: "7", authorId: "nia" }, "Nice!");
const answer = await GET();
const headers = { Authorization: `Bearer ${await answer.text()}` };
const caller = await fetch(`${process.env.CLARION_URL}/v1/caller`, { headers });
console.log(JSON.stringify([refused.status, answer.status, (await caller.json()).user_id]));
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The files of the page, where it says."""
    for name, text in read_files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "lib" / "session.js").write_text(SESSION)
    (tmp_path / "run.js").write_text(RUN)
    client = tmp_path / "node_modules" / "@clarion" / "client"
    client.parent.mkdir(parents=True)
    client.symlink_to(ROOT / "clients" / "js")
    return tmp_path


def read_files() -> dict[str, str]:
    blocks = read_blocks("docs/how-to/nextjs.md")
    return {block.title: block.text for block in blocks if block.title}


def find_faults(*texts: str) -> list[str]:
    node = find_node()
    done = subprocess.run(
        [node.node, "--input-type=module", "--eval", READ, json.dumps(texts)],
        cwd=install(node, PACKAGES),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(done.stdout)
    return found


def test_typescript_reads_every_file() -> None:
    assert len(read_files()) == 6
    assert find_faults(*read_files().values()) == []
    assert find_faults("export const broken = <b>;") != []


def test_the_files_of_the_server_sign_and_send(server: Server, project: Path) -> None:
    app = server.first["app"]
    given = {
        "CLARION_URL": f"http://127.0.0.1:{server.installation.port}",
        "CLARION_APP_ID": app["id"],
        "CLARION_API_KEY": app["api_key"],
        "CLARION_USER_SECRET": app["user_secret"],
    }
    done = subprocess.run(
        [find_node().node, "run.js"],
        cwd=project,
        env=given,
        capture_output=True,
        text=True,
        check=False,
    )
    assert json.loads(done.stdout or "null") == [401, 200, "nia"], done.stderr
    (item,) = wait_until(lambda: server.app.get("/v1/users/nia/notifications").json["items"])
    assert (item["body"], item["deeplink"]) == ("Nia commented on your post: “Nice!”", "/posts/7")

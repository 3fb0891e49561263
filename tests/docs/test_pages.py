"""Every code block of the README and the guides is run or compared, as a reader would do it."""

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, PageFault, list_pages, parse, read_blocks
from tests.docs.postgres import DebianPostgres
from tests.docs.reader import Clone, Reader
from tests.peers.fcm import make_key, pem_of

# The first page of a run waits for the installation.
pytestmark = pytest.mark.timeout(400)
# These start a server themselves.
START = re.compile(r"make run|clarion serve")
# These set up an installation; on the other pages there is one.
FROM_THE_START = {"README.md", "docs/quickstart.md", "docs/how-to/run-on-postgresql.md"}


@pytest.fixture
def peers(page: str, redis_url: str, folder: Path) -> Iterator[dict[str, str]]:
    """Where the PostgreSQL and the Redis of the page are."""
    with ExitStack() as stack:
        port = "5432"
        if ":5432/" in (ROOT / page).read_text():
            postgres = stack.enter_context(DebianPostgres(settings={"ssl": "on"}))
            port = str(postgres.port)
            sudo = folder.parent / "sudo" / "sudo"
            sudo.parent.mkdir()
            sudo.write_text(postgres.sudo)
            sudo.chmod(0o755)
            (folder / "postgres-ca.pem").write_bytes(postgres.certificate)
        yield {":5432/": f":{port}/", "redis://127.0.0.1:6379/0": redis_url}


@pytest.mark.parametrize("page", list_pages())
def test_a_page_can_be_followed_from_its_top(
    page: str, clone: Clone, data: Path, folder: Path, peers: dict[str, str]
) -> None:
    blocks = read_blocks(page)
    commands = [block for block in blocks if block.kind == "sh" and not block.changes_machine]
    if not commands:
        return
    starts = any(START.search(block.text) for block in commands)
    if page not in FROM_THE_START:
        shutil.copytree(data, folder / "data")
    bring(page, folder)
    with Reader(clone, folder.parent, peers) as reader:
        if not starts:
            reader.start_server()
        reader.follow(blocks)


def bring(page: str, folder: Path) -> None:
    """Add what a reader has from elsewhere: the files that Apple and Google give out."""
    if page == "docs/how-to/push-to-phones.md":
        (made,) = (folder / "data" / "provider-keys").iterdir()
        shutil.copy(made, folder / "AuthKey_F6G7H8I9J0.p8")
        account = {
            "type": "service_account",
            "project_id": "my-project",
            "private_key_id": "0123456789abcdef",
            "private_key": pem_of(make_key()),
            "client_email": "push@my-project.iam.gserviceaccount.com",
            "token_uri": "https://oauth2.googleapis.com/token",
        }
        (folder / "service-account.json").write_text(json.dumps(account))


def test_no_idempotency_key_is_used_on_two_pages() -> None:
    assert find_shared(r"Idempotency-Key: ([\w-]+)") == {}


def test_no_email_address_belongs_to_two_users() -> None:
    """In the app of a reader who follows all pages, the second user would be refused."""
    pages = "\n".join(block.text for page in list_pages() for block in read_blocks(page))
    owners = defaultdict(set)
    for user, body in re.findall(r"PUT +/v1/users/(\w+) '(\{.*?\})'", pages, re.DOTALL):
        for address in re.findall(r'"email": *"([^"]+)"', body):
            owners[address.lower()].add(user)
    assert [address for address, users in owners.items() if len(users) > 1] == []


def find_shared(pattern: str) -> dict[str, set[str]]:
    pages = defaultdict(set)
    for page in list_pages():
        for block in read_blocks(page):
            for found in re.findall(pattern, block.text):
                pages[found].add(page)
    return {found: where for found, where in pages.items() if len(where) > 1}


@pytest.mark.parametrize(
    "text",
    [
        "```\nno kind\n```\n",
        "```yaml\nkey: value\n```\n",
        "```python\nprint()\n```\n",
        '```python title="unused.py"\nprint()\n```\n',
        '```json\n{"shown": "without a command"}\n```\n',
        "```sh skip\nfalse\n```\n",
    ],
)
def test_a_block_that_would_be_skipped_is_a_fault(text: str) -> None:
    with pytest.raises(PageFault):
        parse("page.md", text)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ('{"count":2}', '{"count":2}\n'),
        ('{"id":"…",\n "count":2}', '{"id":"01a1e114","count":2}'),
        ('{"at":"2026-01-31T12:00:00.000Z"}', '{"at":"2030-10-30T10:59:01.123Z"}'),
        ("after 2 ms", "after 17 ms"),
    ],
)
def test_shown_output_is_compared(shown: str, printed: str) -> None:
    *_, block = parse("page.md", f"```sh\ntrue\n```\n```text\n{shown}\n```\n")
    assert block.matches(printed)
    assert not block.matches(printed.replace("2", "3").replace("ms", "s").replace("at", "in"))

"""The pages that a reader follows, and their code blocks.

| block | what a test does with it |
|---|---|
| `sh` | runs it in the terminal of the page, in order |
| `sh` with a comment `… until Ctrl-C` | runs it in a terminal of its own, which stays open |
| `sh` with a comment `after Ctrl-C …` | stops what stays open, then runs it |
| `sh` in which each command begins with `sudo` | changes the machine: only its syntax is checked |
| `sh` with `sudo -u postgres` | runs it as the account of the PostgreSQL of the page |
| `python`, `js`, … with `title="FILE"` | saves it as the file, which the page must use |
| `json`, `text` | shown output: compared with what the commands before it printed |
| `text` with `│` | a drawing |

Any other block is a fault of the page.
"""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(.*)\n((?:.*\n)*?)^```$", re.MULTILINE)
INFO = re.compile(r'(\w+)(?: title="([\w./-]+)")?')
FILES = {"python", "js", "php", "html", "nginx", "ini", "toml"}
# Files that a page in a browser uses: tests/browser/test_guides.py opens each.
IN_A_BROWSER = {
    "open-stream.js",
    "watch.js",
    "socket.js",
    "page.html",
    "clicks.js",
    "subscribe.js",
    "worker.js",
}
_AS_POSTGRES = "sudo -u postgres "
READS = ("api GET ", "api POST /v1/explain ")
SHOWN = {"json", "text"}
# What differs from run to run, and may be shown as it once was: ids, times, durations. `…` stands
# for anything.
VARYING = {
    "id": "[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}",
    "time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z",
    "clock": r"\d\d:\d\d:\d\d",
    "duration": r"\d+ms",
    "anything": "…",
}
TOKENS = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in VARYING.items()))


class PageFault(Exception):
    """A page has a block that nobody can run or compare."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """A code block, and where it is."""

    page: str
    line: int
    kind: str
    title: str | None
    text: str

    @property
    def is_drawing(self) -> bool:
        return self.kind == "text" and "│" in self.text

    @property
    def is_shown(self) -> bool:
        return self.kind in SHOWN and not self.is_drawing

    @property
    def changes_machine(self) -> bool:
        lines = [line for line in self.text.splitlines() if line and not line.startswith(" ")]
        as_root = [line.startswith("sudo ") and not line.startswith(_AS_POSTGRES) for line in lines]
        return self.kind == "sh" and all(as_root)

    @property
    def only_reads(self) -> bool:
        """Whether a reader may repeat it, until what was sent before has arrived."""
        lines = [line for line in self.text.splitlines() if line and not line.startswith(" ")]
        return all(line.startswith(READS) for line in lines)

    @property
    def stays(self) -> bool:
        """Whether its last command runs until somebody stops it."""
        return bool(re.search(r"#.*until Ctrl-C", self.text))

    @property
    def comes_after_a_stop(self) -> bool:
        return bool(re.search(r"#.*after Ctrl-C", self.text))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def matches(self, printed: str) -> bool:
        """Whether this is what was printed, or a part of it; line breaks and spaces are free."""
        pattern, text, end = "", re.sub(r"\s", "", self.text), 0
        for token in TOKENS.finditer(text):
            varying = ".*?" if token[0] == "…" else VARYING[token.lastgroup or ""]
            pattern += re.escape(text[end : token.start()]) + varying
            end = token.end()
        pattern += re.escape(text[end:])
        return bool(re.search(pattern, re.sub(r"\s", "", printed), re.DOTALL))


def list_pages() -> list[str]:
    """Return the pages that are to be followed, in the order of the README's table."""
    guides = {f"docs/how-to/{path.name}" for path in (ROOT / "docs" / "how-to").glob("*.md")}
    named = re.findall(r"^\| \[(docs/[^\]]+\.md)\]", (ROOT / "README.md").read_text(), re.MULTILINE)
    wanted = {"docs/quickstart.md", *guides}
    assert wanted <= set(named), f"not in the table of the README: {wanted - set(named)}"
    return ["README.md", *(each for each in named if each in wanted)]


def read_blocks(page: str) -> list[Block]:
    """Return the blocks of a page; `PageFault` for one of an unknown kind."""
    return parse(page, (ROOT / page).read_text())


def parse(page: str, text: str) -> list[Block]:
    blocks: list[Block] = []
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        info = INFO.fullmatch(found[1])
        kind, title = (info[1], info[2]) if info else (found[1], None)
        block = Block(page=page, line=line, kind=kind, title=title, text=found[2])
        check(block, blocks, text)
        blocks.append(block)
    return blocks


def check(block: Block, before: list[Block], text: str) -> None:
    if block.kind in FILES and block.title:
        if text.count(block.title) == 1 and block.title not in IN_A_BROWSER:
            raise PageFault(f"{block}: nothing uses {block.title}")
    elif block.kind not in {"sh", *SHOWN} or block.title:
        raise PageFault(f"{block}: a block {block.kind!r} is neither run nor compared")
    if block.is_shown and not any(each.kind == "sh" for each in before):
        raise PageFault(f"{block}: output without a command before it")

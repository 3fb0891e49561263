"""The reference pages name everything the program has, and every link leads to a page."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cyclopts import App

import clarion
from clarion.access.model import Scope
from clarion.audit.operations import AUDITED, NOT_AUDITED
from clarion.channels.metrics import ChannelMetrics
from clarion.cli.main import app
from clarion.events.decide.rules import ORDER
from clarion.events.ledger import LedgerCheck
from clarion.events.metrics import PipelineMetrics, watch_ledger
from clarion.history.model import ReasonCode
from clarion.http.docs import list_errors
from clarion.push.connections import Connections
from clarion.push.metrics import GatewayMetrics, watch_devices
from clarion.settings import describe
from clarion.telemetry.metrics import CircuitMetrics, Metrics
from clarion.telemetry.tallies import Tally
from tests.log_words import ANY, UnknownWordError, find_words, read_sources
from tools.reference import PAGES

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
STATIC = ROOT / "src" / "clarion" / "http" / "static"
DASHBOARD = ROOT / "src" / "clarion" / "admin" / "static"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOT_OURS = {
    ".git",
    ".venv",
    ".hypothesis",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    "__pycache__",
    "build",
    "data",
    "dist",
    "results",
}
# Machine paths and package registries. In pieces, so that this file does not find itself.
PIECES = [
    (r"(?<![\w.*])/", "root/"),
    (r"(?<![\w.*])/", "work/"),
    ("pypi", r"\.org"),
    (r"files\.", "pythonhosted"),
    (r"registry\.", "npmjs"),
]
FOREIGN = re.compile("|".join(map("".join, PIECES)).encode())
# Metaphors that the code once used. In halves, as above.
HALVES = ["ho use", "wi ngs", "par cel", "chap ter", "tell ing", "fore sight"]
METAPHOR = re.compile(rf"\b({'|'.join(HALVES).replace(' ', '')})\b", re.IGNORECASE)


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def rows(name: str) -> list[list[str]]:
    """Return the cells of all table rows of a reference page."""
    lines = [line for line in page(name).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def first_cells(name: str) -> set[str]:
    return {row[0] for row in rows(name)}


def project_files() -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.is_file()
        # Files of the package that are links are pages of the documentation, or of clients/.
        and not path.is_symlink()
        and not NOT_OURS & set(path.relative_to(ROOT).parts)
    )


def test_the_settings_page_has_every_setting_and_no_other() -> None:
    assert rows("settings.md")[1:] == [
        [f"`{flag} {metavar}`", f"`{variable}`", f"`{default}`" if default else "(empty)", doc]
        for flag, metavar, variable, default, doc in describe()
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_what_the_program_says_now(name: str) -> None:
    assert page(name) == PAGES[name](), "run python tools/reference.py"


def test_every_error_code_has_a_heading() -> None:
    codes = {kind.code for kind in list_errors()}
    assert codes - set(re.findall(r"^## (\w+)$", page("errors.md"), re.MULTILINE)) == set()


def commands(of: App, path: str = "clarion") -> Iterator[str]:
    """Yield every command that can be run, as it is typed."""
    names = [name for name in of if not name.startswith("-")]
    if not names:
        yield path
    for name in names:
        yield from commands(of[name], f"{path} {name}")


def test_every_command_is_documented() -> None:
    documented = [cell.strip("`") for cell in first_cells("cli.md")]
    assert [
        command
        for command in commands(app)
        if not any(text == command or text.startswith(f"{command} ") for text in documented)
    ] == []


def metric_names() -> set[str]:
    metrics = Metrics()
    numbers = dict.fromkeys(("units", "batches", "refused", "waiting", "waiting_bytes"), 0)
    metrics.watch_writer(SimpleNamespace(**numbers, sizes=Tally(), times=Tally()))
    metrics.watch_sockets([])
    metrics.watch_inbox([])
    metrics.watch_rendering(Tally())
    metrics.watch_certificate(0)
    metrics.watch_disk(lambda: (0, 0))
    counts = dict.fromkeys(("hits", "misses", "registered", "invalidated"), 0)
    devices: Any = SimpleNamespace(**counts)
    watch_devices(metrics.registry, devices, Connections(), lambda: 0)
    watch_ledger(metrics.registry, LedgerCheck(SimpleNamespace()))
    GatewayMetrics(metrics.registry)
    CircuitMetrics(metrics.registry)
    ChannelMetrics(metrics.registry)
    pipeline = PipelineMetrics()
    queue: Any = SimpleNamespace(refused={}, ages_s=dict, lengths=dict, dead_letters=0, stuck=0)
    pipeline.watch_queue(queue)
    metrics.registry.register(pipeline)
    families = metrics.registry.collect()
    return {each.name + ("_total" if each.type == "counter" else "") for each in families}


def test_every_metric_is_documented() -> None:
    ours = {name for name in metric_names() if not name.startswith("process_")}
    assert {f"`{name}`" for name in ours} - first_cells("metrics.md") == set()


def test_every_word_of_the_log_is_documented_with_its_level_and_no_other() -> None:
    documented = {
        row[0].strip("`"): set(row[1].split(", "))
        for row in rows("log-events.md")
        if row[0].startswith("`")
    }
    logged = {
        word: {"warning", "error"} if levels == {ANY} else levels
        for word, levels in find_words(read_sources()).items()
    }
    assert documented == logged


def test_words_of_the_log_are_found_however_they_are_logged() -> None:
    found = find_words(
        {
            "one.py": "get_logger().info('a' if is_b else 'b')\nself._log.warning('c')",
            "two.py": "def _warn(event): get_logger().warning(event)\n_warn('d')\nself._warn('e')",
            "three.py": "Outage('f', 'g', host='h')\nlog_failure('i', error, code='j')",
        }
    )
    levels = {"info": "ab", "warning": "cdefgi"}
    assert found == {word: {level} for level, words in levels.items() for word in words}
    with pytest.raises(UnknownWordError):
        find_words({"four.py": "get_logger().error(f'{word}_failed')"})
    with pytest.raises(UnknownWordError):
        find_words({"five.py": "Outage(f'{word}_unavailable', 'available')"})


def test_every_scope_is_documented() -> None:
    assert {f"`{scope.value}`" for scope in Scope} - first_cells("api-keys.md") == set()


def test_every_audited_operation_is_documented_with_its_action() -> None:
    found = {tuple(row[:2]) for row in rows("audit.md")}
    recorded = {(f"`{action}`", f"`{each}`") for each, action in AUDITED.items()}
    others = {(f"`{each}`", reason) for each, reason in NOT_AUDITED.items()}
    assert found - {("action", "operation"), ("not recorded", "why")} == recorded | others


def test_every_dependency_is_documented() -> None:
    wanted = [
        *PROJECT["project"]["dependencies"],
        *chain.from_iterable(PROJECT["dependency-groups"].values()),
        *PROJECT["build-system"]["requires"],
    ]
    packages = {re.split(r"[\[<>=~ ]", each)[0] for each in wanted}
    assert (
        packages - {name for cell in first_cells("dependencies.md") for name in cell.split(", ")}
        == set()
    )


def test_every_reason_is_documented_once() -> None:
    documented = [row[0].strip("`") for row in rows("reasons.md")[1:] if row[0].startswith("`")]
    assert sorted(documented) == sorted(ReasonCode)


def test_the_rules_are_documented_in_their_order() -> None:
    names = re.findall(r"^\d+\. \*\*(\w+)\*\*", page("reasons.md"), re.MULTILINE)
    assert names == [name for name, _ in ORDER]


def test_every_link_leads_to_a_file_and_a_heading() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {link}" for path, link in links() if is_dead(path, link)
    ] == []


def links() -> Iterator[tuple[Path, str]]:
    """Yield every relative link of every Markdown page, outside of code."""
    for path in project_files():
        if path.suffix == ".md":
            text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                if "://" not in link:
                    yield path, link


def is_dead(source: Path, link: str) -> bool:
    if link.startswith("/"):
        return True  # it would lead to the root of whichever host shows the page
    file, _, heading = link.partition("#")
    path = source.parent / file if file else source
    return not path.exists() or bool(heading and heading not in headings(path))


def headings(path: Path) -> set[str]:
    """Return the anchors of a page, as they are made from its headings."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_dead_links_are_found() -> None:
    here = ROOT / "README.md"
    for link in ("/docs", "no-such-file.md", "CHANGELOG.md#no-such-heading", "#no-such-heading"):
        assert is_dead(here, link)
    assert not is_dead(here, "CHANGELOG.md#changelog")


def test_the_files_that_the_architecture_names_are_there() -> None:
    pages = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs" / "why").glob("*.md"))]
    named = {
        (path.name, file)
        for path in pages
        for file in re.findall(r"(?<![\w/.])(?:\w+/)+\w+\.py\b", path.read_text())
    }
    assert len(named) > 100
    roots = (ROOT, ROOT / "src" / "clarion")
    assert [
        f"{page}: {file}"
        for page, file in sorted(named)
        if not any((root / file).exists() for root in roots)
    ] == []


def test_each_alert_of_the_runbook_fits_on_a_phone() -> None:
    text = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
    entries = re.findall(r"^### (\w+)\n\w+ · .+\n\n((?:[* ] .+\n)+)", text, re.MULTILINE)
    assert [name for name, _ in entries] == re.findall(r"^### (.+)$", text, re.MULTILINE)
    for name, entry in entries:
        parts = re.findall(r"^\* \*\*(.+)\*\*: ((?:.+\n(?!\*))*.+\n)", entry, re.MULTILINE)
        assert [label for label, _ in parts] == ["Means", "See why", "Do"], name
        assert max(len(part.split()) for _, part in parts) <= 45, name


def test_the_first_change_begins_with_what_the_files_have() -> None:
    text = (ROOT / "docs" / "why" / "first-change.md").read_text()
    for file, part in (
        ("tests/e2e/test_people.py", '"business": {'),
        ("tests/e2e/test_people.py", "created_and_read"),
        ("src/clarion/people/profile.py", "class Business"),
        ("src/clarion/people/profile.py", "Text | None = None"),
    ):
        assert file in text
        assert part in text
        assert part in (ROOT / file).read_text()
    assert "cost_center" not in (ROOT / "src" / "clarion" / "people" / "profile.py").read_text()


def test_the_architecture_is_short() -> None:
    assert len((ROOT / "ARCHITECTURE.md").read_bytes()) <= 15_000


def test_this_version_is_in_the_changelog_and_everywhere_the_same() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    clients = ROOT / "clients"
    python = tomllib.loads((clients / "python" / "pyproject.toml").read_text())["project"]
    javascript = json.loads((clients / "js" / "package.json").read_bytes())
    for version in (python["version"], javascript["version"], PROJECT["project"]["version"]):
        assert newest[1] == version == clarion.__version__
    runtime = PROJECT["project"]["dependencies"]
    assert set(python["dependencies"]) <= set(runtime), "the server has the same client"


@pytest.mark.parametrize(
    ("folder", "names"), [(STATIC, "swagger-ui*"), (DASHBOARD, "htmx*"), (DASHBOARD, "uplot*")]
)
def test_vendored_files_are_as_they_were_published(folder: Path, names: str) -> None:
    vendored = [path for path in folder.glob(names) if path.suffix in {".js", ".css"}]
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in vendored}
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert sums
    assert sums == {name: listed[name] for name in sums}
    assert list(folder.glob(f"{names.rstrip('*')}.LICENSE")) != []


def test_no_file_names_a_machine_or_a_registry() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in project_files()
        for match in FOREIGN.finditer(path.read_bytes())
    ] == []


def test_machines_and_registries_are_found() -> None:
    starts = ("at /", "https://pypi", "https://files.", "https://registry.")
    for piece in (end.replace("\\", "") for _, end in PIECES):
        assert any(FOREIGN.search(f"{start}{piece}".encode()) for start in starts)


def test_no_file_uses_a_metaphor() -> None:
    ours = [path for path in project_files() if not path.is_relative_to(STATIC)]
    assert [
        f"{name}: {match[0]}"
        for path in ours
        if (name := str(path.relative_to(ROOT))).startswith(("src/", "tests/", "docs/"))
        for match in METAPHOR.finditer(f"{name}\n{path.read_text(errors='replace')}")
    ] == []


def find_broken_rows(text: str) -> list[str]:
    """Return the rows of tables that do not end in their line: the rest would be a paragraph."""
    without_code = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    rows = (line.strip() for line in without_code.splitlines())
    return [row for row in rows if row.startswith("|") and not row.endswith("|")]


def test_every_row_of_a_table_is_one_line() -> None:
    folders = ("docs", "examples", "clients", "ops", "src/clarion")
    pages = [
        *ROOT.glob("*.md"),
        *(page for each in folders for page in (ROOT / each).rglob("*.md")),
    ]
    assert len(pages) > 50
    broken = {str(page): found for page in pages if (found := find_broken_rows(page.read_text()))}
    assert not broken


def test_a_broken_row_is_found() -> None:
    assert find_broken_rows("| a | b |\n| c\nd |\n```\n| e\n```\n") == ["| c"]

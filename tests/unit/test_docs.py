"""Docs cannot lie: what the program has, its reference names; and every link leads somewhere."""

import hashlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from cyclopts import App

import clarion
from clarion.access.model import Scope
from clarion.cli.main import app
from clarion.events.decide.rules import ORDER
from clarion.events.model import ReasonCode
from clarion.http.docs import list_errors
from clarion.settings import describe
from clarion.telemetry.metrics import GatewayMetrics, Metrics
from clarion.telemetry.pipeline_metrics import PipelineMetrics

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "docs" / "reference"
STATIC = ROOT / "src" / "clarion" / "http" / "static"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NO_PART_OF_IT = {
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


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


def rows(name: str) -> list[list[str]]:
    """Return the cells of all table rows of a reference page."""
    lines = [line for line in page(name).splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def project_files() -> list[Path]:
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not NO_PART_OF_IT & set(path.relative_to(ROOT).parts[:-1])
    )


@pytest.mark.parametrize("setting", describe(), ids=lambda setting: setting[0])
def test_a_setting_is_on_its_page_with_flag_variable_and_default(
    setting: tuple[str, str, str, str, str],
) -> None:
    flag, metavar, variable, default, doc = setting
    (row,) = [row for row in rows("settings.md") if row[0].startswith(f"`{flag} ")]
    shown = f"`{default}`" if default else "(empty)"
    assert row == [f"`{flag} {metavar}`", f"`{variable}`", shown, doc]


def test_the_page_of_settings_has_no_setting_that_is_gone() -> None:
    flags = {setting[0] for setting in describe()}
    assert {row[0].strip("`").split()[0] for row in rows("settings.md")[1:]} == flags


@pytest.mark.parametrize("kind", list_errors(), ids=lambda kind: kind.code)
def test_an_error_code_has_a_heading(kind: type[clarion.errors.ClarionError]) -> None:
    assert f"\n## {kind.code}\n" in page("errors.md")


def commands(of: App, path: str = "clarion") -> Iterator[str]:
    """Yield every command that does something, as it is typed."""
    names = [name for name in of if not name.startswith("-")]
    if not names:
        yield path
    for name in names:
        yield from commands(of[name], f"{path} {name}")


@pytest.mark.parametrize("command", list(commands(app)))
def test_a_command_is_on_its_page(command: str) -> None:
    assert re.search(rf"^\| `{command}[` ]", page("cli.md"), re.MULTILINE)


def metric_names() -> list[str]:
    metrics = Metrics()
    counts = SimpleNamespace(units=0, batches=0, refused=0)
    metrics.watch_writer(SimpleNamespace(counts=counts, waiting=0))
    metrics.watch_gateway(sockets=[], connections=[], registry=SimpleNamespace(hits=0, misses=0))
    metrics.watch_inbox([])
    GatewayMetrics(metrics.registry)
    metrics.registry.register(PipelineMetrics())
    families = metrics.registry.collect()
    return [each.name + ("_total" if each.type == "counter" else "") for each in families]


@pytest.mark.parametrize("metric", metric_names())
def test_a_metric_is_on_its_page(metric: str) -> None:
    assert f"`{metric}`" in [row[0] for row in rows("metrics.md")]


def dependencies() -> list[str]:
    wanted = [
        *PROJECT["project"]["dependencies"],
        *PROJECT["dependency-groups"]["dev"],
        *PROJECT["build-system"]["requires"],
    ]
    return [re.split(r"[\[<>=~ ]", each)[0] for each in wanted]


@pytest.mark.parametrize("package", dependencies())
def test_a_dependency_is_on_its_page(package: str) -> None:
    named = [name for row in rows("dependencies.md") for name in row[0].split(", ")]
    assert package in named


@pytest.mark.parametrize("scope", Scope)
def test_a_scope_is_on_the_page_of_api_keys(scope: Scope) -> None:
    assert f"`{scope.value}`" in [row[0] for row in rows("api-keys.md")]


def links() -> list[tuple[str, str]]:
    """Return every relative link of every Markdown page, outside of code."""
    found = []
    for path in project_files():
        if path.suffix == ".md":
            text = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL)
            targets = re.findall(r"\]\(([^)\s]+)\)", text)
            found += [(str(path.relative_to(ROOT)), each) for each in targets if "://" not in each]
    return found


@pytest.mark.parametrize(("source", "target"), links())
def test_a_link_leads_to_a_file(source: str, target: str) -> None:
    if target.startswith("/"):
        pytest.fail("a link that begins with / leads to the root of whatever host shows the page")
    file, _, heading = target.partition("#")
    path = (ROOT / source).parent / file if file else ROOT / source
    assert path.exists()
    assert not heading or heading in headings(path)


def headings(path: Path) -> set[str]:
    """Return the anchors of a page, as they are made from its headings."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_this_version_is_in_the_changelog_and_everywhere_the_same() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["project"]["version"] == clarion.__version__


def checksums() -> dict[str, str]:
    lines = (STATIC / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


@pytest.mark.parametrize("name", checksums())
def test_a_vendored_file_is_as_it_was_published(name: str) -> None:
    assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == checksums()[name]


def test_every_vendored_file_has_a_checksum() -> None:
    vendored = {path.name for path in STATIC.glob("swagger-ui*") if path.suffix in {".js", ".css"}}
    assert vendored == set(checksums())


def test_no_file_names_a_machine_or_a_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in project_files()
        for match in FOREIGN.finditer(path.read_bytes())
    ]
    assert found == []


@pytest.mark.parametrize("piece", [end.replace("\\", "") for _, end in PIECES])
def test_the_check_would_find_them(piece: str) -> None:
    starts = ("at /", "https://pypi", "https://files.", "https://registry.")
    assert any(FOREIGN.search(f"{start}{piece}".encode()) for start in starts)


def test_every_reason_is_explained_once() -> None:
    explained = [row[0].strip("`") for row in rows("reasons.md")[1:] if row[0].startswith("`")]

    assert sorted(explained) == sorted(ReasonCode)


def test_the_rules_are_listed_in_the_order_in_which_they_are_asked() -> None:
    text = page("reasons.md")

    assert re.findall(r"^\d+\. \*\*(\w+)\*\*", text, re.MULTILINE) == [name for name, _ in ORDER]

"""Who may import whom. The table is the architecture; this test keeps it so.

An import counts wherever it stands: for types alone, inside a function, at the top.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "src" / "clarion"

# What every stage may speak of: types, errors, ports, time, settings, and what observes it.
WORDS = {"model", "errors", "ports", "clock", "settings", "setting_kinds", "telemetry"}
STAGES = {
    "access",
    "catalog",
    "gateway",
    "intake",
    "decide",
    "render",
    "channels",
    "inbox",
    "directory",
    "ledger",
}
ADAPTERS = {"store", "hot"}
ALLOWED: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "model": set(),
    "errors": set(),
    "clock": set(),
    "ports": {"model", "errors"},
    "setting_kinds": {"errors"},
    "settings": {"errors", "setting_kinds"},
    "telemetry": set(),
    **dict.fromkeys(STAGES, WORDS),
    "pipeline": WORDS | STAGES,
    "store": {"model", "errors"},
    "hot": {"model", "errors", "ports", "telemetry"},
    "serving": {"errors", "settings", "setting_kinds"},
    "api": WORDS | STAGES | {"pipeline"},
    "admin": WORDS | STAGES,
    "client": set(),
    "commands": WORDS | STAGES | {"serving", "house", "app"},
    "cli": WORDS | STAGES | {"serving", "commands", "house", "app"},
    "house": WORDS | STAGES | ADAPTERS | {"serving"},
    "wings": WORDS | STAGES | {"house", "pipeline", "api", "hot"},
    "app": WORDS | STAGES | ADAPTERS | {"house", "wings", "pipeline", "serving", "api", "admin"},
}
# Beyond the table, file by file: why is said in the file.
EXCEPTIONS = {"commands/doctor.py": ADAPTERS, "cli.py": {"store"}}
ONLY_STANDARD_LIBRARY = {"model", "errors", "ports"}

FILE_LINES = 400
FOLDER_FILES = 10
FOLDER_DEPTH = 3
FUNCTION_LINES = 60
VAGUE = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "base", "misc"}


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the full name of every module that is imported, wherever that is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            is_package = base == "clarion"
            yield from (f"{base}.{each.name}" if is_package else base for each in node.names)


def forbidden_imports(path: str, source: str) -> list[str]:
    """Return what a file must not import; `path` is that below the package."""
    part = path.partition("/")[0].removesuffix(".py")
    if part not in ALLOWED:
        return [f"{path}: {part} is not in the table of this test"]
    allowed = ALLOWED[part] | EXCEPTIONS.get(path, set()) | {part, "__version__"}
    return [
        f"{path} must not import {name}"
        for name in imported(ast.parse(source))
        if not is_allowed(name, allowed, is_plain=part in ONLY_STANDARD_LIBRARY)
    ]


def is_allowed(name: str, allowed: set[str], *, is_plain: bool) -> bool:
    top, _, rest = name.partition(".")
    if top == "clarion":
        return rest.partition(".")[0] in allowed
    return bool(top) and (not is_plain or top in sys.stdlib_module_names)


def module_paths() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", module_paths())
def test_a_module_imports_only_what_its_layer_may(path: str) -> None:
    assert forbidden_imports(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model.py", "import msgspec"),
        ("errors.py", "from clarion.model import App"),
        ("ports.py", "from clarion.settings import Settings"),
        ("ports.py", "import asyncpg"),
        ("access/callers.py", "from clarion.gateway.session import Session"),
        ("access/callers.py", "from clarion.store.sql.access.keys import SqlKeys"),
        ("gateway/sockets.py", "import clarion.store.engine"),
        ("gateway/sockets.py", "from clarion import store"),
        ("gateway/sockets.py", "def f():\n    from clarion.hot.redis import connect"),
        ("gateway/sockets.py", "if TYPE_CHECKING:\n    from clarion.api.front import Front"),
        ("gateway/sockets.py", "from ..store import engine"),
        ("decide/rules.py", "from clarion.render.templates import render"),
        ("store/engine.py", "from clarion.ports import Keys"),
        ("store/sql/access/keys.py", "from clarion.access.secrets import ApiSecret"),
        ("hot/redis.py", "from clarion.store.engine import Engine"),
        ("api/access/keys.py", "from clarion.store.sql.access.keys import SqlKeys"),
        ("api/front.py", "from clarion.hot.memory import MemoryLimits"),
        ("commands/first_run.py", "from clarion.store.opening import migrate"),
        ("cli.py", "from clarion.hot.redis import connect"),
        ("client/calls.py", "from clarion.model import App"),
        ("brand_new/thing.py", ""),
    ],
)
def test_the_check_finds_what_is_forbidden(path: str, source: str) -> None:
    assert len(forbidden_imports(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("model.py", "from dataclasses import dataclass\nimport enum"),
        ("access/callers.py", "from clarion.access.secrets import ApiSecret\nimport jwt"),
        ("store/sql/access/keys.py", "from clarion.store.statement import Unit"),
        ("api/access/keys.py", "from clarion.access.callers import Callers"),
        ("commands/doctor.py", "from clarion.store.opening import sqlite_path"),
        ("app.py", "from clarion.store.opening import open_engine"),
        ("api/framework.py", "from clarion import __version__"),
    ],
)
def test_the_check_lets_pass_what_is_allowed(path: str, source: str) -> None:
    assert forbidden_imports(path, source) == []


def test_every_exception_is_needed() -> None:
    for path, extra in EXCEPTIONS.items():
        names = set(imported(ast.parse((ROOT / path).read_text())))
        used = {name.split(".")[1] for name in names if name.startswith("clarion.")}
        assert extra <= used, path


def test_the_command_line_imports_adapters_only_when_a_command_needs_them() -> None:
    tree = ast.parse((ROOT / "cli.py").read_text())
    tops = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    names = {name for node in tops for name in imported(node)}
    assert not {name for name in names if name.startswith(("clarion.app", "clarion.store"))}


@pytest.mark.parametrize("path", module_paths())
def test_a_file_is_no_longer_than_it_can_be_read(path: str) -> None:
    assert len((ROOT / path).read_text().splitlines()) <= FILE_LINES


def long_functions(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    ]


def folders() -> list[Path]:
    return sorted({path.parent for path in ROOT.rglob("*.py")})


@pytest.mark.parametrize("folder", folders(), ids=lambda each: str(each.relative_to(ROOT)))
def test_a_folder_can_be_taken_in_at_a_glance(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= FOLDER_FILES
    assert len(folder.relative_to(ROOT).parts) <= FOLDER_DEPTH


@pytest.mark.parametrize("path", module_paths())
def test_a_function_fits_on_a_page(path: str) -> None:
    assert long_functions((ROOT / path).read_text()) == []


def test_the_check_finds_a_long_function() -> None:
    body = "    pass\n" * FUNCTION_LINES
    assert long_functions(f"def fits():\n{body[:-9]}\nasync def long():\n{body}") == ["long"]


@pytest.mark.parametrize("path", module_paths())
def test_no_module_has_a_vague_name(path: str) -> None:
    assert not VAGUE & set(path.removesuffix(".py").split("/"))

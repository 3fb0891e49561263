"""Who may import whom: slices meet through `model.py` and `port.py`; the composition root wires.

A class that has no Protocol is seen by other slices where `port.py` re-exports it: that of the
adapter itself, or of any module, of its own slice alone.

An import counts wherever it stands: for types alone, inside a function, at the top.
"""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from clarion.store.table import Table

ROOT = Path(__file__).resolve().parents[2] / "src" / "clarion"
SLICES = {
    "access",
    "audit",
    "people",
    "catalog",
    "push",
    "events",
    "history",
    "analytics",
    "inbox",
    "channels",
    "idempotency",
}
# These know the adapters, and no other module does.
COMPOSITION = {"app", "cli", "__main__"}
# What lies at the top though it is no folder of its own: the vocabulary that every slice uses.
LOOSE = {"clock", "errors", "fields", "pacing", "pages"}
FUNCTION_LINES = 50
SQL = re.compile(r"\b(?:FROM|JOIN|INTO|UPDATE) (\w+)")
VAGUE = {"util", "utils", "helper", "helpers", "manager", "managers", "common", "base", "misc"}


class Module(NamedTuple):
    """A module below the package by its parts: `("push", "sql", "devices")`."""

    parts: tuple[str, ...]

    @property
    def top(self) -> str:
        return self.parts[0] if self.parts else ""

    @property
    def is_contract(self) -> bool:
        """Whether other slices may see it."""
        return self.parts[1:2] in (("model",), ("port",), ("views",))

    @property
    def is_adapter(self) -> bool:
        return bool({"sql", "tables"} & set(self.parts)) or self.parts[:2] in (
            ("nodes", "redis"),
            ("nodes", "memory"),
            ("nodes", "local_bus"),
        )


PACKAGE = Module(())


def imported(tree: ast.AST, importer: Module = PACKAGE) -> Iterator[Module]:
    """Yield every module of ours that is imported, wherever that is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # `from .b import c` in clarion.a.d
            package = ["clarion", *importer.parts[: -node.level]] if node.level else []
            base = ".".join([*package, *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, *parts = name.split(".")
            if root == "clarion":
                yield Module(tuple(parts))


def is_allowed(importer: Module, other: Module) -> bool:
    """Whether one module of ours may import another."""
    if importer.top in COMPOSITION or other.top == importer.top:
        return True
    if importer.top == "client" or other.top == "admin":
        return False
    if other.top in SLICES:
        if other.is_adapter:
            return importer.is_adapter
        return other.is_contract and importer.top not in {"store", "clock", "errors", "pages"}
    if other.is_adapter or other.top in COMPOSITION:
        return False
    return other.top != "store" or importer.is_adapter


def modules() -> dict[Module, ast.Module]:
    return {
        Module(path.relative_to(ROOT).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(ROOT.rglob("*.py"))
    }


def test_modules_import_only_what_they_may() -> None:
    assert [
        f"{'.'.join(module.parts)} must not import {'.'.join(other.parts)}"
        for module, tree in modules().items()
        for other in imported(tree, module)
        if not is_allowed(module, other)
    ] == []


@pytest.mark.parametrize(
    ("importer", "source", "expected"),
    [
        ("push.registry", "from clarion.events.model import Event", True),
        ("push.registry", "from clarion.events.port import Events", True),
        ("push.registry", "from clarion.events.worker import Worker", False),
        ("push.registry", "def f():\n    from clarion.store.engine import Engine", False),
        ("push.registry", "if TYPE_CHECKING:\n    from clarion.push.sql.devices import X", True),
        ("push.registry", "from clarion.inbox.sql.inboxes import SqlInboxes", False),
        ("people.port", "from clarion.people.sql import Users as Users", True),
        ("people.api.users", "from clarion.people.sql import Users", True),
        ("events.port", "from clarion.people.sql import Users", False),
        ("events.port", "from clarion.people.port import Users", True),
        ("http.idempotency", "from clarion.access.vault import Vault", False),
        ("http.idempotency", "from clarion.access.port import Vault", True),
        ("events.sql.outcomes", "from clarion.inbox.sql.numbers import NEXT", True),
        ("events.sql.outcomes", "from clarion.store.statement import statement", True),
        ("store.engine", "from clarion.push.model import Device", False),
        ("inbox.feed", "from clarion.nodes.redis import connect", False),
        ("inbox.feed", "from clarion.app.server import Server", False),
        ("client.calls", "from clarion.errors import ClarionError", False),
        ("client.calls", "from ..errors import ClarionError", False),
        ("client.calls", "from .errors import ApiError", True),
        ("admin.pages.people", "from clarion.people.model import User", True),
        ("admin.pages.people", "from clarion.people.api.users import UserView", False),
        ("http.front", "from clarion.admin.dashboard import Dashboard", False),
        ("app.server", "from clarion.nodes.redis import connect", True),
    ],
)
def test_the_check_tells_allowed_from_forbidden(
    importer: str, source: str, *, expected: bool
) -> None:
    module = Module(tuple(importer.split(".")))
    (other,) = imported(ast.parse(source), module)
    assert is_allowed(module, other) is expected


def find_owners() -> dict[str, str]:
    """Return the slice of each table, by its declaration."""
    paths = ROOT.glob("*/tables.py")
    slices = {path.parent.name: f"clarion.{path.parent.name}.tables" for path in paths}
    slices.pop("app")  # the list of all
    return {
        value.name: name
        for name, module in slices.items()
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, Table)
    }


def find_sql(tree: ast.AST) -> Iterator[str]:
    """Yield the tables that the texts of a module read or write."""
    for node in ast.walk(tree):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        text = "".join(
            part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else " _ "
            for part in parts
        )
        yield from SQL.findall(text)


def test_a_tables_sql_is_in_one_slice() -> None:
    owners = find_owners()
    assert {
        f"{'.'.join(module.parts)} has SQL on {table}, a table of {owners[table]}/"
        for module, tree in modules().items()
        for table in find_sql(tree)
        if table in owners and module.top != owners[table]
    } == set()


@pytest.mark.parametrize(
    ("source", "tables"),
    [
        ('f"SELECT 1 FROM users {x} JOIN events"', ["users", "events"]),
        ('f"UPDATE {x}jobs SET"', []),
        ('"DELETE FROM devices WHERE id IN (SELECT id FROM topics)"', ["devices", "topics"]),
        ('f"INSERT INTO {TABLE.name} VALUES"', []),
    ],
)
def test_tables_are_found_in_texts(source: str, tables: list[str]) -> None:
    assert list(dict.fromkeys(find_sql(ast.parse(source)))) == tables


def test_models_and_sql_import_nothing_of_http() -> None:
    assert [
        ".".join(module.parts)
        for module, tree in modules().items()
        if {"model", "sql", "tables"} & set(module.parts[1:])
        for other in imported(tree)
        if other.top == "http"
    ] == []


def test_nothing_else_lies_loose_at_the_top() -> None:
    loose = {path.stem for path in ROOT.glob("*.py")}
    assert loose == {"__init__", "__main__", *LOOSE}


def test_the_client_library_imports_nothing_else_of_ours_and_itself_without_a_name() -> None:
    """It is also the package `clarion_client`."""
    found = [
        (other.top, other in imported(tree))
        for module, tree in modules().items()
        if module.top == "client"
        for other in imported(tree, module)
    ]
    assert set(found) == {("client", False)}


def test_no_function_is_too_long_and_no_name_is_vague() -> None:
    found = []
    for module, tree in modules().items():
        found += [".".join(module.parts)] * bool(VAGUE & set(module.parts))
        found += [
            f"{'.'.join(module.parts)}.{node.name}"
            for node in ast.walk(tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
        ]
    assert found == []


def test_there_is_no_import_cycle() -> None:
    graph = {module: set(runtime_imports(tree, module)) for module, tree in modules().items()}
    names = set(graph)
    cycles = []
    for start, first in graph.items():
        seen, queue = set(), [other for other in first if other in names]
        while queue:
            module = queue.pop()
            if module in seen:
                continue
            seen.add(module)
            queue += [other for other in graph[module] if other in names]
        if start in seen:
            cycles.append(".".join(start.parts))
    assert cycles == []


def runtime_imports(tree: ast.Module, importer: Module) -> Iterator[Module]:
    """Yield what a module imports when it is loaded: not for types alone, not in functions."""
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for module in imported(node, importer):
                yield module
                yield Module(module.parts[:-1])

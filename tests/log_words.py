"""Finds the words under which the program logs, and their levels, in its source."""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "clarion"
LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
}
# Logs with the level of what it passes on.
ANY = "log"
# Log under the words that they are given: the first line of an outage, and its last one; what
# failed. Repeats and what only follows from an outage are logged at debug, which is not counted.
OUTAGES = {"Outage": 2, "log_failure": 1}


class UnknownWordError(Exception):
    """A line is logged under a word that the source does not show."""


def find_words(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return the words of some sources, each with its levels.

    A function that logs what it is given as `event` passes words on: those of its callers count.
    """
    trees = [ast.parse(text, name) for name, text in sources.items()]
    passing = dict(chain.from_iterable(map(find_passing, trees)))
    found: dict[str, set[str]] = {}
    for call, level in chain.from_iterable(find_calls(tree, passing) for tree in trees):
        for word in words_of(call):
            found.setdefault(word, set()).add(level)
    for word in chain.from_iterable(map(find_outages, trees)):
        found.setdefault(word, set()).add("warning")
    return found


def find_outages(tree: ast.Module) -> Iterator[str]:
    """Yield the words of what does not work for a while."""
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        for given in call.args[: OUTAGES.get(name_of(call.func), 0)]:
            if not isinstance(given, ast.Constant) or not isinstance(given.value, str):
                raise UnknownWordError(ast.unparse(call))
            yield given.value


def find_passing(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the functions that pass words on, with the level at which they log."""
    for function, call, level in logging_calls(tree):
        if words_of(call):
            continue
        if not isinstance(call.args[0], ast.Name) or call.args[0].id != "event":
            raise UnknownWordError(ast.unparse(call))
        if function not in LEVELS:  # a log of ours, whose callers are found as those of any log
            yield function, level


def find_calls(tree: ast.Module, passing: dict[str, str]) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that log a word, with their level."""
    yield from ((call, level) for _, call, level in logging_calls(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in passing:
            yield node, passing[name_of(node.func)]


def read_sources() -> dict[str, str]:
    return {str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")}


def logging_calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call, str]]:
    """Yield the calls of loggers, with the name of the function around them and the level."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        method = call.func
        if not isinstance(method, ast.Attribute) or not is_logger(method.value):
            continue
        if method.attr in LEVELS or method.attr == ANY:
            around = [each.name for each in functions if call in ast.walk(each)]
            yield around[-1] if around else "", call, LEVELS.get(method.attr, ANY)


def is_logger(value: ast.expr) -> bool:
    """Whether it is `get_logger()`, or something that is named as a log."""
    if isinstance(value, ast.Call):
        return name_of(value.func) == "get_logger"
    return name_of(value).strip("_") == "log"


def name_of(value: ast.expr) -> str:
    if isinstance(value, ast.Attribute):
        return value.attr
    return value.id if isinstance(value, ast.Name) else ""


def words_of(call: ast.Call) -> list[str]:
    """Return the words that a call may log: the first text, or both of a choice."""
    is_any = name_of(call.func) == ANY
    given = call.args[1 if is_any else 0] if len(call.args) > is_any else None
    several = [given.body, given.orelse] if isinstance(given, ast.IfExp) else [given]
    constants = [each.value for each in several if isinstance(each, ast.Constant)]
    return [each for each in constants if isinstance(each, str)]

"""Each planted fault fits the program: `make mutants` runs too long to notice it soon."""

from importlib import util
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

ROOT = Path(__file__).parents[2]


def load_mutants() -> list[ParameterSet]:
    spec = util.spec_from_file_location("mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [pytest.param(each, id=each.name) for each in module.MUTANTS]


@pytest.mark.parametrize("mutant", load_mutants())
def test_a_mutant_replaces_one_place(mutant: tuple[str, str, str, str, str]) -> None:
    _, file, old, new, test = mutant
    assert (ROOT / "src" / "clarion" / file).read_text(encoding="utf-8").count(old) == 1
    assert old != new
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")

"""Programs of the distribution that some tests of `make test-all` run."""

import shutil

import pytest


def find_program(name: str, package: str) -> str:
    """Return the path of a program, or skip the test and say what to install."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if program is None:
        pytest.skip(f"needs {name}: apt-get install {package}")
    return program

"""openapi-python-client, in a folder of its own: servers under test must not find its pydantic."""

from pathlib import Path

from tests.installed_packages import install

LOCK = Path(__file__).with_name("generator.lock")


def install_generator() -> Path:
    """Return a folder with the packages of the lock file."""
    return install(LOCK)

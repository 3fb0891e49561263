"""Flags that many commands share: the settings, and switches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from clarion.errors import StartError
from clarion.settings import Settings, find_unknown, load
from clarion.telemetry import logs

# Every setting is a flag of every command. They are documented once, in `clarion serve --help`.
SettingFlags = Annotated[str, Parameter(show=False)]
Switch = Annotated[bool, Parameter(negative="")]


def read_text(path: Path | None) -> str | None:
    """Return the content of a file that a flag names, without the line break at its end."""
    if path is None:
        return None
    try:
        return path.read_text().removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise StartError(f"Cannot read {path}: {reason}.") from error


def load_settings(flags: Mapping[str, str]) -> Settings:
    """Read flags, environment and file, and configure logging."""
    settings = load(flags, os.environ)
    logs.configure(settings.log_level, settings.log_format)
    for problem in find_unknown(os.environ):
        logs.get_logger().warning("unknown_variable", problem=problem)
    return settings

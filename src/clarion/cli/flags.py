"""Flags that many commands share: the settings, and switches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

from cyclopts import Parameter

from clarion.settings import Settings, load
from clarion.telemetry import logs

# Every setting is a flag of every command. They are documented once, in `clarion serve --help`.
SettingFlags = Annotated[str, Parameter(show=False)]
Switch = Annotated[bool, Parameter(negative="")]


def load_settings(flags: Mapping[str, str]) -> Settings:
    """Read flags, environment and file, and configure logging."""
    settings = load(flags, os.environ)
    logs.configure(settings.log_level, settings.log_format)
    return settings

"""`clarion serve`: run the server until it is stopped."""

from __future__ import annotations

import textwrap

import uvloop
from cyclopts import App

from clarion.app import Server
from clarion.cli.flags import SettingFlags, load_settings
from clarion.privileges import change_account
from clarion.settings import describe


def _describe_settings() -> str:
    lines = ["Settings. Each is also an environment variable and a line in --config FILE (TOML):"]
    for flag, metavar, variable, default, doc in describe():
        lines += ["", f"  {flag} {metavar}  [{variable}]"]
        lines += textwrap.wrap(doc, 70, initial_indent="      ", subsequent_indent="      ")
        lines += [f"      Default: {default}"] if default else []
    return "\n".join(lines)


serve = App(name="serve", help_epilogue=_describe_settings())


@serve.default
def _serve(**settings: SettingFlags) -> int:
    loaded = load_settings(settings)
    change_account(loaded.user, loaded.data)

    async def run() -> int:
        return await Server(loaded).run()

    return uvloop.run(run())

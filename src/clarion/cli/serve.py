"""`clarion serve`: run the server until it is stopped."""

from __future__ import annotations

import textwrap

import uvloop
from cyclopts import App

from clarion.cli.flags import SettingFlags, load_settings
from clarion.settings import Settings, describe
from clarion.store.opening import sqlite_path
from clarion.store.sqlite.process import begin_writer
from clarion.system.privileges import change_account
from clarion.telemetry import logs


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
    logs.log_uncaught()
    change_account(loaded.user, loaded.data)
    return uvloop.run(_run(loaded))


async def _run(settings: Settings) -> int:
    if settings.process_count > 1:
        from clarion.app.processes.parent import ProcessGroup  # noqa: PLC0415 - as below

        return await ProcessGroup(settings, settings.process_count).run()
    writer = await begin_writer() if sqlite_path(settings.database_url) else None
    # Most of a start is this import: the process of the writer starts meanwhile.
    from clarion.app.server import Server  # noqa: PLC0415
    from clarion.cli.set_up import set_up  # noqa: PLC0415

    try:
        return await Server(settings, set_up, writer=writer).run()
    finally:
        if writer:
            writer.writer.close()  # it ends also if the server did not come to open the database

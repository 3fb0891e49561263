"""`clarion user`: users, their privacy, and user tokens for development."""

from __future__ import annotations

from cyclopts import App

user = App(name="user")
user.command("clarion.cli.user_token:token", name="token")
for _name in ("delete", "restore", "erase", "export"):
    user.command(f"clarion.cli.user_privacy:{_name}", name=_name)
user.command("clarion.cli.user_records:create", name="create")
user.command("clarion.cli.user_records:import_users", name="import")

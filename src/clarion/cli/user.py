"""`clarion user`: the privacy of users, and user tokens for development."""

from __future__ import annotations

from cyclopts import App

user = App(name="user")
user.command("clarion.cli.user_token:token", name="token")
for _name in ("delete", "restore", "erase", "export"):
    user.command(f"clarion.cli.user_privacy:{_name}", name=_name)

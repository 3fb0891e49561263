"""`clarion user`: user tokens for development."""

from __future__ import annotations

from cyclopts import App

user = App(name="user")
user.command("clarion.cli.user_token:token", name="token")

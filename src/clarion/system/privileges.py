"""The account of the server: warns when started as root, and can drop privileges."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from clarion.errors import StartError
from clarion.telemetry.logs import get_logger

if TYPE_CHECKING:
    from pathlib import Path

ROOT = 0
_PRIVATE = 0o700


def change_account(user: str, data: Path) -> None:
    """Run as another account from here on, if one is given; warn if this one is root."""
    if user:
        _become(user, data)
    elif os.geteuid() == ROOT:
        advice = "no privilege is needed: use an account of its own, or --user"
        get_logger().warning("running_as_root", advice=advice)


def _become(user: str, data: Path) -> None:
    try:
        account = pwd.getpwnam(user)
    except KeyError as error:
        raise StartError(f"--user: there is no account {user} on this machine.") from error
    if os.geteuid() == account.pw_uid:
        return
    if os.geteuid() != ROOT:
        raise StartError("--user: only root can change the account; leave it out.")
    if not data.exists():
        # Only root may be able to create it there. An existing directory stays as it is.
        data.mkdir(mode=_PRIVATE, parents=True)
        os.chown(data, account.pw_uid, account.pw_gid)
    # The groups first: without root they cannot be changed any more.
    os.initgroups(user, account.pw_gid)
    os.setgid(account.pw_gid)
    os.setuid(account.pw_uid)
    os.environ["HOME"] = account.pw_dir

"""`clarion user delete`, `restore`, `erase` and `export`, through the API of a running server."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from clarion.cli.flags import SettingFlags, Switch
from clarion.cli.printing import print_result
from clarion.cli.remote_server import ApiOptions, connect_api
from clarion.cli.server_connection import path_part
from clarion.client import ApiError, NotReached
from clarion.errors import CommandFailed, StartError, count

_STANDARD_OUTPUT = "-"
# How often is asked whether a large erasure is complete, and for how long.
_POLL_S = 1.0
_POLLS = 3_600


def delete(
    user_id: str,
    /,
    *,
    json: Switch = False,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Delete a user, who can be restored for some days (--deleted-user-days of the server).

    Parameters
    ----------
    user_id
        The id of the user.
    json
        Print the response as JSON.

    """
    with connect_api(server, settings) as client:
        deleted = client.request("DELETE", _path(user_id), returns=dict[str, Any])
    text = f"Deleted {user_id}. Can be restored until {deleted['restorable_until']}."
    print_result(deleted, text, json=json)


def restore(
    user_id: str,
    /,
    *,
    json: Switch = False,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Restore a user who was deleted.

    Parameters
    ----------
    user_id
        The id of the user.
    json
        Print the user as JSON.

    """
    with connect_api(server, settings) as client:
        path = f"{_path(user_id)}/restore"
        restored = client.request("POST", path, returns=dict[str, Any])
    print_result(restored, f"Restored {user_id}.", json=json)


def erase(
    user_id: str,
    /,
    *,
    yes: Switch = False,
    json: Switch = False,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Erase everything about a user, forever, and print the receipt.

    Parameters
    ----------
    user_id
        The id of the user.
    yes
        Do not ask for confirmation.
    json
        Print the receipt as JSON.

    """
    if not yes:
        _confirm(user_id)
    with connect_api(server, settings) as client:
        path = f"{_path(user_id)}?hard=true"
        receipt = client.request("DELETE", path, returns=dict[str, Any])
        for _ in range(_POLLS):
            if receipt["status"] != "running":
                break
            time.sleep(_POLL_S)
            path = f"/v1/erasures/{receipt['receipt_id']}"
            receipt = client.request("GET", path, returns=dict[str, Any])
    removed = sum(receipt["removed"].values())
    text = f"Erased {user_id}: {count(removed, 'row')}. Receipt {receipt['receipt_id']}."
    print_result(receipt, text, json=json)


def export(
    user_id: str,
    file: str = _STANDARD_OUTPUT,
    /,
    *,
    deleted: Switch = False,
    server: ApiOptions | None = None,
    **settings: SettingFlags,
) -> None:
    """Write everything about a user as JSON.

    Parameters
    ----------
    user_id
        The id of the user.
    file
        The file to write. Default: standard output.
    deleted
        Include deleted users.

    """
    path = f"{_path(user_id)}/export" + ("?deleted=true" if deleted else "")
    with connect_api(server, settings) as client:
        if file == _STANDARD_OUTPUT:
            sys.stdout.buffer.writelines(client.download(path))
            return
        target = Path(file)
        try:
            with target.open("wb") as opened:
                target.chmod(0o600)
                opened.writelines(client.download(path))
        except OSError as error:
            raise StartError(f"Cannot write {file}: {error.strerror}.") from error
        except (ApiError, NotReached):
            target.unlink()  # it would not be complete
            raise


def _path(user_id: str) -> str:
    return f"/v1/users/{path_part(user_id, 'user id')}"


def _confirm(user_id: str) -> None:
    if not sys.stdin.isatty():
        raise StartError("This is not a terminal: to confirm, give --yes.")
    if input(f"Type {user_id} to erase everything about this user: ") != user_id:
        raise CommandFailed("Nothing was erased.")

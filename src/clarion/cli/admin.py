"""`clarion admin`: create, list, reset, disable and delete administrators.

These commands need no password: an account that can write to the database can do everything.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from clarion.access.administrators.attempts import hash_name
from clarion.access.administrators.invitations import Invitation, Invitations
from clarion.access.administrators.model import Administrator, check_username
from clarion.access.model import Role
from clarion.app.stores import Stores, open_stores
from clarion.cli.app import find_app
from clarion.cli.first_run import admin_url_of
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.printing import print_json, print_result
from clarion.clock import to_rfc3339
from clarion.errors import FieldFault, InvalidFields, NotFound
from clarion.fields import check_value

admin = App(name="admin")
_PAGE = 100
AppRole = Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=False)]


class Shown(msgspec.Struct, kw_only=True, omit_defaults=True):
    """An administrator as `--json` prints it."""

    id: str
    username: str
    role: Role | None
    app_roles: dict[str, Role]
    is_active: bool
    has_password: bool
    setup_url: str | None = None
    setup_expires_at: str | None = None


@admin.command
async def create(
    username: str,
    /,
    *,
    role: Role | None = None,
    app_role: AppRole = (),
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Create an administrator, and print the link for setting the password.

    The link can be used once, within 24 hours.

    Parameters
    ----------
    role
        The role for all apps: admin, editor or viewer. Without any role: admin.
    app_role
        APP_ID=ROLE: the role for one app. May be given several times.
    json
        Print the administrator and the link as JSON.

    """
    app_roles = dict(map(_read_app_role, app_role))
    async with _open(settings) as (stores, invitations):
        for app_id in app_roles:
            await find_app(stores, app_id)
        general = role if role or app_roles else Role.ADMIN
        account = invitations.propose(
            check_value("username", check_username, username), general, app_roles, ()
        )
        invitation = invitations.make(account.id)
        stores.audit_log.describe(administrator_id=account.id)
        await stores.admins.accounts.create(account, invitation.link)
        _print_link(account, invitation, json=json)


@admin.command(name="list")
async def list_administrators(*, json: Switch = False, **settings: SettingFlags) -> None:
    """List all administrators: id, username, role, roles for single apps, state."""
    async with _open(settings) as (stores, _):
        found = [account async for account in _list(stores)]
    if json:
        print_json(list(map(_show, found)))
        return
    for each in found:
        apps = " ".join(f"{app_id}={role}" for app_id, role in each.app_roles.items())
        print(f"{each.id}  {each.username}  {each.role or '-'}  {apps or '-'}  {_state(each)}")


@admin.command
async def reset(
    username: str, /, *, totp: Switch = False, json: Switch = False, **settings: SettingFlags
) -> None:
    """Remove the password of an administrator, and print a link to set another.

    All sessions end, trusted devices and admin API keys are revoked, and failed sign-ins are
    forgotten. The second factor stays.

    Parameters
    ----------
    totp
        Remove the second factor, too.
    json
        Print the administrator and the link as JSON.

    """
    async with _open(settings) as (stores, invitations):
        account = await _find(stores, username)
        stores.audit_log.describe(administrator_id=account.id)
        invitation = await invitations.reset(account.id, clears_totp=totp)
        if invitation is None:
            raise _unknown(username)
        await stores.admins.attempts.forget(f"account:{hash_name(account.username)}")
        await stores.admins.attempts.forget(f"second_factor:{account.id}")
        _print_link(replace(account, password_hash=None), invitation, json=json)


@admin.command
async def disable(username: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """Block the sign-in of an administrator, end all sessions and revoke all admin API keys."""
    done = await _edit(
        settings, username, lambda each, now: replace(each, disabled_at=each.disabled_at or now)
    )
    print_result(_show(done), f"Disabled {username}.", json=json)


@admin.command
async def enable(username: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """Let a disabled administrator sign in again."""
    done = await _edit(settings, username, lambda each, _: replace(each, disabled_at=None))
    print_result(_show(done), f"Enabled {username}.", json=json)


@admin.command
async def delete(username: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """Delete an administrator with all sessions, keys and second factors."""
    async with _open(settings) as (stores, _):
        account = await _find(stores, username)
        stores.audit_log.describe(administrator_id=account.id)
        if not await stores.admins.accounts.delete(account.id):
            raise _unknown(username)
        print_result(_show(account), f"Deleted {username}.", json=json)


@contextlib.asynccontextmanager
async def _open(flags: Mapping[str, str]) -> AsyncIterator[tuple[Stores, Invitations]]:
    settings = load_settings(flags)
    async with open_stores(settings) as stores:
        yield stores, Invitations(stores.admins.links, stores.clock, admin_url_of(settings))


async def _edit(
    flags: Mapping[str, str], username: str, change: Callable[[Administrator, int], Administrator]
) -> Administrator:
    async with _open(flags) as (stores, _):
        account, now = await _find(stores, username), stores.clock.now()
        stores.audit_log.describe(administrator_id=account.id)
        done = await stores.admins.accounts.edit(account.id, lambda each: change(each, now))
    if done is None:
        raise _unknown(username)
    return done


async def _list(stores: Stores) -> AsyncIterator[Administrator]:
    after: str | None = ""
    while after is not None:
        page = await stores.admins.accounts.list(after=after, limit=_PAGE)
        for account in page.items:
            yield account
        after = page.next


async def _find(stores: Stores, username: str) -> Administrator:
    account = await stores.admins.accounts.find(username)
    if account is None:
        raise _unknown(username)
    return account


def _unknown(username: str) -> NotFound:
    return NotFound(
        f"There is no administrator {username}. `clarion admin list` lists the administrators."
    )


def _read_app_role(text: str) -> tuple[str, Role]:
    app_id, _, role = text.partition("=")
    if role not in set(Role):
        raise InvalidFields(
            FieldFault("--app-role", f"must be APP_ID=ROLE with one of {', '.join(Role)}")
        )
    return app_id, Role(role)


def _show(account: Administrator) -> Shown:
    return Shown(
        id=account.id,
        username=account.username,
        role=account.role,
        app_roles=account.app_roles,
        is_active=account.is_active,
        has_password=account.password_hash is not None,
    )


def _state(account: Administrator) -> str:
    if not account.is_active:
        return "disabled"
    return "active" if account.password_hash else "invited"


def _print_link(account: Administrator, invitation: Invitation, *, json: bool) -> None:
    shown = msgspec.structs.replace(
        _show(account),
        setup_url=invitation.url,
        setup_expires_at=to_rfc3339(invitation.link.expires_at),
    )
    print_result(shown, invitation.url, json=json)

"""`clarion key`: create, list, rotate and revoke API keys."""

from __future__ import annotations

from cyclopts import App

from clarion.access.app_keys import check_overlap
from clarion.access.keys import IssuedKey, issue_key
from clarion.access.model import ApiKey
from clarion.access.views import show_created_key, show_key
from clarion.app.stores import Stores, open_stores
from clarion.cli.app import find_app
from clarion.cli.flags import SettingFlags, Switch, load_settings
from clarion.cli.printing import print_json, print_rows
from clarion.clock import to_rfc3339
from clarion.errors import NotFound

key = App(name="key")
_DAY_MS = 24 * 3600 * 1000
_PAGE = 100


@key.command
async def create(
    app_id: str,
    label: str,
    /,
    *scopes: str,
    days: int | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Create an API key for an app and print it. The key cannot be shown again.

    Scopes are like events:write. Without scopes the key may do everything.

    Parameters
    ----------
    days
        After so many days the key expires. Without it, it does not.
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        await find_app(stores, app_id)
        now = stores.clock.now()
        expires_at = None if days is None else now + days * _DAY_MS
        issued = issue_key(
            app_id=app_id, label=label, scopes=scopes or ["*"], now=now, expires_at=expires_at
        )
        stores.audit_log.describe(app_id=app_id, key_id=issued.key.id)
        await stores.keys.create(issued.key)
        _print_new(issued, json=json)


@key.command(name="list")
async def list_keys(app_id: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """List the API keys of an app: id, state, last use, label, scopes.

    Parameters
    ----------
    json
        Print them as the API shows them.

    """
    async with open_stores(load_settings(settings)) as stores:
        await find_app(stores, app_id)
        keys, now = await _list_all(stores, app_id), stores.clock.now()
    if json:
        print_json([show_key(each) for each in keys])
    elif keys:
        print_rows([_describe(each, now) for each in keys])


@key.command
async def rotate(
    app_id: str,
    key_id: str,
    /,
    *,
    overlap_s: int = 24 * 3600,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Create a key like another and print it. The old one expires when the overlap ends.

    Parameters
    ----------
    overlap_s
        So many seconds the old key stays valid, at most 30 days. Default: a day.
    json
        Print the new key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        now, overlap = stores.clock.now(), check_overlap(overlap_s)
        old = await stores.keys.find(key_id)
        if old is None or old.app_id != app_id:
            raise _missing(app_id, key_id)
        issued = issue_key(
            app_id=app_id,
            label=old.label,
            scopes=old.scopes,
            now=now,
            expires_at=old.expires_at if old.is_live(now) else None,
        )
        stores.audit_log.describe(app_id=app_id, key_id=key_id, new_key_id=issued.key.id)
        await stores.keys.rotate(key_id, issued.key, now=now, ends_at=now + overlap)
        _print_new(issued, json=json)


@key.command
async def revoke(
    app_id: str, key_id: str, /, *, json: Switch = False, **settings: SettingFlags
) -> None:
    """Revoke an API key. Running servers refuse it within two seconds.

    The id of a key is the part between the underscores of ck_<id>_<secret>.

    Parameters
    ----------
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        stores.audit_log.describe(app_id=app_id, key_id=key_id)
        revoked = await stores.keys.revoke(app_id, key_id, stores.clock.now())
        if revoked is None:
            raise _missing(app_id, key_id)
        if json:
            print_json(show_key(revoked))
        else:
            print(f"Revoked {key_id}.")


async def _list_all(stores: Stores, app_id: str) -> list[ApiKey]:
    keys: list[ApiKey] = []
    after: str | None = None
    while True:
        page = await stores.keys.list(app_id, after=after, limit=_PAGE)
        keys += page.items
        after = page.next
        if after is None:
            return keys


def _describe(each: ApiKey, now: int) -> tuple[str, ...]:
    used = to_rfc3339(each.last_used_at) if each.last_used_at else "not used"
    return each.id, each.describe_state(now), used, each.label, " ".join(sorted(each.scopes))


def _print_new(issued: IssuedKey, *, json: bool) -> None:
    if json:
        print_json(show_created_key(issued))
    else:
        print(issued.secret.text)


def _missing(app_id: str, key_id: str) -> NotFound:
    return NotFound(f"The app {app_id} has no key {key_id}.")

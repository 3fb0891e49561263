"""`clarion key`, `user-key` and `provider-key`: the three kinds of keys of an app."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Generic, Literal, TypeVar

from cyclopts import App, Parameter

from clarion.access.app_keys import IssuedProviderKey, IssuedUserKey, check_overlap
from clarion.access.keys import issue_key
from clarion.access.model import ApiKey, ProviderKey, UserKey, UserTokenAlgorithm
from clarion.access.views import (
    CreatedUserKey,
    ProviderKeyView,
    UserKeyView,
    show_created_key,
    show_key,
)
from clarion.app.stores import Stores, open_stores
from clarion.cli.app import find_app
from clarion.cli.flags import SettingFlags, Switch, load_settings, read_text
from clarion.cli.printing import print_json, print_result, print_rows
from clarion.clock import to_rfc3339
from clarion.errors import NotFound
from clarion.http.views import View
from clarion.system.data_directory import write_private

K = TypeVar("K", ApiKey, UserKey, ProviderKey)
key, user_key, provider_key = App(name="key"), App(name="user-key"), App(name="provider-key")
_DAY_S = 24 * 3600
_PAGE = 100


@dataclass(frozen=True, kw_only=True)
class Kind(Generic[K]):
    """The operations on one kind of keys, and how they are shown."""

    list: Callable[[Stores, str], Awaitable[Sequence[K]]]
    revoke: Callable[[Stores, str, str], Awaitable[K]]
    show: Callable[[K], View]
    describe: Callable[[K, int], tuple[str, ...]]
    id_name: str = "KEY_ID"


class NewProviderKey(View):
    """A new provider key; `path` is the file with its private key, if one was made."""

    key_id: str
    team_id: str
    path: str | None


@key.command(name="create")
async def create_key(
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
        Days after which the key expires. Default: never.
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        await find_app(stores, app_id)
        now = stores.clock.now()
        expires_at = None if days is None else now + days * _DAY_S * 1000
        issued = issue_key(
            app_id=app_id, label=label, scopes=scopes or ["*"], now=now, expires_at=expires_at
        )
        stores.audit_log.describe(app_id=app_id, key_id=issued.key.id)
        await stores.keys.create(issued.key)
        print_result(show_created_key(issued), issued.secret.text, json=json)


@key.command(name="rotate")
async def rotate_key(
    app_id: str,
    key_id: str,
    /,
    *,
    overlap_s: int = _DAY_S,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Create a successor of a key and print it. The old key expires when the overlap ends.

    Parameters
    ----------
    overlap_s
        Seconds the old key stays valid, at most 30 days. Default: a day.
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
        print_result(show_created_key(issued), issued.secret.text, json=json)


@user_key.command(name="create")
async def create_user_key(
    app_id: str,
    /,
    *,
    algorithm: Literal["HS256", "ES256", "EdDSA"] = "HS256",
    kid: str | None = None,
    public_key: Path | None = None,
    secret: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a key and print its kid; for HS256 the secret too, which cannot be shown again.

    Parameters
    ----------
    algorithm
        HS256 (a shared secret), ES256 or EdDSA (a public key). Default: HS256.
    kid
        The name of the key. Default: a new one is created.
    public_key
        A file with the public key (PEM), for ES256 and EdDSA.
    secret
        A file with a secret of at least 32 bytes, for HS256. Default: a new one is created.
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        issued = await stores.keyring.propose_user_key(
            app_id,
            algorithm=UserTokenAlgorithm(algorithm),
            kid=kid,
            secret=read_text(secret),
            public_key=read_text(public_key),
        )
        await stores.keyring.add_user_key(issued.key)
        _print_user_key(issued, json=json)


@user_key.command(name="rotate")
async def rotate_user_key(
    app_id: str,
    kid: str,
    /,
    *,
    overlap_s: int = _DAY_S,
    new_kid: str | None = None,
    public_key: Path | None = None,
    secret: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a key of the same algorithm. The old one expires when the overlap ends.

    Parameters
    ----------
    overlap_s
        Seconds the old key stays valid, at most 30 days. Default: a day.
    new_kid
        The name of the new key. Default: a new one is created.
    public_key
        A file with the new public key (PEM), for ES256 and EdDSA.
    secret
        A file with a new secret of at least 32 bytes, for HS256. Default: one is created.
    json
        Print the new key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        old = await stores.keyring.find_user_key(app_id, kid)
        issued = await stores.keyring.propose_user_key(
            app_id,
            algorithm=old.algorithm,
            kid=new_kid,
            secret=read_text(secret),
            public_key=read_text(public_key),
        )
        await stores.keyring.rotate_user_key(kid, issued.key, overlap_s)
        _print_user_key(issued, json=json)


@provider_key.command(name="create")
async def create_provider_key(
    app_id: str,
    /,
    *,
    key_id: str | None = None,
    public_key: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a provider key. Without a public key, a pair is created and saved as a .p8 file.

    Parameters
    ----------
    key_id
        Ten capital letters and digits. Default: a new one is created.
    public_key
        A file with the public key (PEM, on the curve P-256).
    json
        Print the key as JSON.

    """
    async with open_stores(load_settings(settings)) as stores:
        issued = await stores.keyring.propose_provider_key(
            app_id, key_id=key_id, public_key=read_text(public_key)
        )
        await stores.keyring.add_provider_key(issued.key)
        _print_provider_key(_save(stores, issued), json=json)


@provider_key.command(name="rotate")
async def rotate_provider_key(
    app_id: str,
    key_id: str,
    /,
    *,
    overlap_s: int = _DAY_S,
    new_key_id: str | None = None,
    public_key: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a provider key. The old one expires when the overlap ends.

    Parameters
    ----------
    overlap_s
        Seconds the old key stays valid, at most 30 days. Default: a day.
    new_key_id
        The id of the new key. Default: a new one is created.
    public_key
        A file with the new public key (PEM, on the curve P-256).
    json
        Print the new key as JSON.

    """
    async with open_stores(load_settings(settings)) as stores:
        await stores.keyring.find_provider_key(app_id, key_id)
        issued = await stores.keyring.propose_provider_key(
            app_id, key_id=new_key_id, public_key=read_text(public_key)
        )
        await stores.keyring.rotate_provider_key(key_id, issued.key, overlap_s)
        _print_provider_key(_save(stores, issued), json=json)


async def _list_api_keys(stores: Stores, app_id: str) -> list[ApiKey]:
    await find_app(stores, app_id)
    keys: list[ApiKey] = []
    after: str | None = None
    while True:
        page = await stores.keys.list(app_id, after=after, limit=_PAGE)
        keys += page.items
        after = page.next
        if after is None:
            return keys


def _describe_api_key(each: ApiKey, now: int) -> tuple[str, ...]:
    used = to_rfc3339(each.last_used_at) if each.last_used_at else "not used"
    return each.id, each.describe_state(now), used, each.label, " ".join(sorted(each.scopes))


async def _revoke_api_key(stores: Stores, app_id: str, key_id: str) -> ApiKey:
    stores.audit_log.describe(app_id=app_id, key_id=key_id)
    revoked = await stores.keys.revoke(app_id, key_id, stores.clock.now())
    if revoked is None:
        raise _missing(app_id, key_id)
    return revoked


def _missing(app_id: str, key_id: str) -> NotFound:
    return NotFound(f"The app {app_id} has no key {key_id}.")


def _save(stores: Stores, issued: IssuedProviderKey) -> NewProviderKey:
    """Save the private key that was made, if one was."""
    if issued.private_key is None:
        return NewProviderKey.of(issued.key, path=None)
    path = stores.directory.provider_keys / f"AuthKey_{issued.key.key_id}.p8"
    write_private(path, issued.private_key.encode())
    return NewProviderKey.of(issued.key, path=str(path.resolve()))


def _print_user_key(issued: IssuedUserKey, *, json: bool) -> None:
    secret = "" if issued.secret is None else f"\nsecret  {issued.secret}"
    shown = CreatedUserKey.of(issued.key, secret=issued.secret)
    print_result(shown, f"kid     {issued.key.kid}{secret}", json=json)


def _print_provider_key(new: NewProviderKey, *, json: bool) -> None:
    file = "" if new.path is None else f"\nfile     {new.path}"
    print_result(new, f"key id   {new.key_id}\nteam id  {new.team_id}{file}", json=json)


def _add_commands(group: App, kind: Kind[K], list_help: str, revoke_help: str) -> None:
    """Add the commands that are the same for each kind of keys."""

    async def list_keys(app_id: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
        """List keys.

        Parameters
        ----------
        json
            Print them as the API shows them.

        """
        async with open_stores(load_settings(settings)) as stores:
            keys, now = await kind.list(stores, app_id), stores.clock.now()
        if json:
            print_json([kind.show(each) for each in keys])
        elif keys:
            print_rows([kind.describe(each, now) for each in keys])

    # Without `from __future__ import annotations`, so that this annotation can read `kind`.
    async def revoke(
        app_id: str,
        key_id: Annotated[str, Parameter(name=kind.id_name)],
        /,
        *,
        json: Switch = False,
        **settings: SettingFlags,
    ) -> None:
        """Revoke a key.

        Parameters
        ----------
        json
            Print the key as the API shows it.

        """
        async with open_stores(load_settings(settings)) as stores:
            revoked = await kind.revoke(stores, app_id, key_id)
            print_result(kind.show(revoked), f"Revoked {key_id}.", json=json)

    group.command(list_keys, name="list", help=list_help)
    group.command(revoke, help=revoke_help)


_add_commands(
    key,
    Kind(
        list=_list_api_keys,
        revoke=_revoke_api_key,
        show=show_key,
        describe=_describe_api_key,
    ),
    "List the API keys of an app: id, state, last use, label, scopes.",
    "Revoke an API key. Running servers refuse it within two seconds.\n\n"
    "The id of a key is the part between the underscores of ck_<id>_<secret>.",
)
_add_commands(
    user_key,
    Kind(
        id_name="KID",
        list=lambda stores, app_id: stores.keyring.list_user_keys(app_id),
        revoke=lambda stores, app_id, kid: stores.keyring.revoke_user_key(app_id, kid),
        show=UserKeyView.of,
        describe=lambda each, now: (each.kid, each.algorithm.value, each.describe_state(now)),
    ),
    "List the user keys of an app: kid, algorithm, state.",
    "Revoke a user key. Running servers refuse its tokens within two seconds.",
)
_add_commands(
    provider_key,
    Kind(
        list=lambda stores, app_id: stores.keyring.list_provider_keys(app_id),
        revoke=lambda stores, app_id, key_id: stores.keyring.revoke_provider_key(app_id, key_id),
        show=ProviderKeyView.of,
        describe=lambda each, now: (each.key_id, each.team_id, each.describe_state(now)),
    ),
    "List the provider keys of an app: key id, team id, state.",
    "Revoke a provider key. Running servers refuse its tokens within five seconds.",
)

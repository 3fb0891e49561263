"""`clarion provider-key`: the keys by which the APNs providers of an app are identified."""

from __future__ import annotations

from pathlib import Path

from cyclopts import App

from clarion.access.app_keys import IssuedProviderKey
from clarion.access.views import ProviderKeyView
from clarion.app.stores import Stores, open_stores
from clarion.cli.flags import SettingFlags, Switch, load_settings, read_text
from clarion.cli.printing import print_json, print_rows
from clarion.http.views import View
from clarion.system.data_directory import write_private

provider_key = App(name="provider-key")


class NewKey(View):
    """A new provider key; `path` is the file with its private key, if one was made."""

    key_id: str
    team_id: str
    path: str | None


@provider_key.command
async def create(
    app_id: str,
    /,
    *,
    key_id: str | None = None,
    public_key: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a provider key. Without a public key a pair is made and saved as a .p8 file.

    Parameters
    ----------
    key_id
        Ten capital letters and digits. One is made if it is left out.
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
        _print_new(_save(stores, issued), json=json)


@provider_key.command(name="list")
async def list_keys(app_id: str, /, *, json: Switch = False, **settings: SettingFlags) -> None:
    """List the provider keys of an app: key id, team id, state.

    Parameters
    ----------
    json
        Print them as the API shows them.

    """
    async with open_stores(load_settings(settings)) as stores:
        keys, now = await stores.keyring.list_provider_keys(app_id), stores.clock.now()
    if json:
        print_json([ProviderKeyView.of(each) for each in keys])
    elif keys:
        print_rows([(each.key_id, each.team_id, each.describe_state(now)) for each in keys])


@provider_key.command
async def rotate(
    app_id: str,
    key_id: str,
    /,
    *,
    overlap_s: int = 24 * 3600,
    new_key_id: str | None = None,
    public_key: Path | None = None,
    json: Switch = False,
    **settings: SettingFlags,
) -> None:
    """Add a provider key. The old one expires when the overlap ends.

    Parameters
    ----------
    overlap_s
        So many seconds the old key stays valid, at most 30 days. Default: a day.
    new_key_id
        The id of the new key. One is made if it is left out.
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
        _print_new(_save(stores, issued), json=json)


@provider_key.command
async def revoke(
    app_id: str, key_id: str, /, *, json: Switch = False, **settings: SettingFlags
) -> None:
    """Revoke a provider key. Running servers refuse its tokens within five seconds.

    Parameters
    ----------
    json
        Print the key as the API shows it.

    """
    async with open_stores(load_settings(settings)) as stores:
        revoked = await stores.keyring.revoke_provider_key(app_id, key_id)
        if json:
            print_json(ProviderKeyView.of(revoked))
        else:
            print(f"Revoked {key_id}.")


def _save(stores: Stores, issued: IssuedProviderKey) -> NewKey:
    """Save the private key that was made, if one was."""
    if issued.private_key is None:
        return NewKey.of(issued.key, path=None)
    path = stores.directory.provider_keys / f"AuthKey_{issued.key.key_id}.p8"
    write_private(path, issued.private_key.encode())
    return NewKey.of(issued.key, path=str(path.resolve()))


def _print_new(new: NewKey, *, json: bool) -> None:
    if json:
        print_json(new)
        return
    print(f"key id   {new.key_id}\nteam id  {new.team_id}")
    if new.path is not None:
        print(f"file     {new.path}")

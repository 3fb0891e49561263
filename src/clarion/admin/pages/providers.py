"""Providers: their recent results, the form of each kind, and tests."""

from __future__ import annotations

from typing import Any

import msgspec

from clarion.access.model import Scope
from clarion.admin.forms import check_unused, read_number, show_again
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.provider_forms import FORMS, ProviderForm, read_secrets, read_settings
from clarion.admin.visit import Visit
from clarion.errors import NotFound
from clarion.http.asgi import Response

_NUMBERS = ("order", "timeout_s", "concurrency", "daily_cap")
_DEFAULTS: dict[str, Any] = {
    "order": 0,
    "is_active": True,
    "timeout_s": 10,
    "concurrency": 32,
    "daily_cap": None,
    "sandbox": False,
    "settings": {},
    "secrets": [],
}
_SUCCESSES = frozenset({"delivered", "sent", "verified"})


async def list_providers(visit: Visit) -> Response:
    providers = (await visit.get("providers"))["items"]
    return await visit.render("providers.html", providers=providers, forms=FORMS)


async def show_new_provider(visit: Visit) -> Response:
    """Show the kinds of providers, or the form of the chosen kind."""
    kind = visit.query.get("kind", "")
    if kind not in FORMS:
        return await visit.render("provider_kinds.html", forms=FORMS)
    form = FORMS[kind]
    given = _DEFAULTS | {"channel": form.channels[0], "name": "", "kind": kind}
    return await visit.render("new_provider.html", provider=given, form=form)


async def create_provider(visit: Visit) -> Response:
    kind = visit.query.get("kind", "")
    form = FORMS.get(kind)
    if form is None:
        raise NotFound("There is no such kind of provider.")
    channel = visit.field("channel") or form.channels[0]
    name = visit.field("name").strip()
    try:
        await check_unused(
            visit,
            "providers",
            channel,
            name=name,
            field="name",
            rule="must have lower-case letters, digits, - or _",
            what="a provider of this channel",
        )
        made = await _put(visit, channel, name, kind, form)
    except Refused as refused:
        given = _given(visit) | {"channel": channel, "name": name, "kind": kind}
        return await show_again(visit, "new_provider.html", refused, provider=given, form=form)
    if made["secret"]:
        return await _show(visit, made, secret=made["secret"])
    return visit.redirect(visit.app_path("providers", channel, name), notice="provider-saved")


async def show_provider(visit: Visit) -> Response:
    return await _show(visit, await _find(visit))


async def save_provider(visit: Visit) -> Response:
    provider = await _find(visit)
    kind = provider["kind"]
    try:
        await _put(visit, provider["channel"], provider["name"], kind, FORMS[kind])
    except Refused as refused:
        return await _show_refused(visit, provider | _given(visit), refused)
    return visit.redirect(_path_of(visit), notice="provider-saved")


async def delete_provider(visit: Visit) -> Response:
    await visit.call("DELETE", *_parts_of(visit))
    return visit.redirect(visit.app_path("providers"), notice="provider-deleted")


async def test_provider(visit: Visit) -> Response:
    """Send a test message, or only try the credentials, and show what the provider answered."""
    provider = await _find(visit)
    is_for_credentials = visit.field("what") == "credentials"
    to = None if is_for_credentials else _read_address(visit.field("to"))
    try:
        result = await visit.post(*_parts_of(visit), "test", body={"to": to})
    except Refused as refused:
        return await _show_refused(visit, provider, refused)
    result["tone"] = "good" if result["outcome"] in _SUCCESSES else "bad"
    return await _show(visit, await _find(visit), result=result, to=visit.field("to"))


async def _show(visit: Visit, provider: dict[str, Any], **more: Any) -> Response:
    values = {"result": None, "to": "", "secret": None} | more
    form = FORMS.get(provider["kind"])
    return await visit.render("provider.html", provider=provider, form=form, **values)


async def _show_refused(visit: Visit, provider: dict[str, Any], refused: Refused) -> Response:
    return await show_again(
        visit,
        "provider.html",
        refused,
        provider=provider,
        form=FORMS.get(provider["kind"]),
        result=None,
        to=visit.field("to"),
        secret=None,
    )


async def _find(visit: Visit) -> dict[str, Any]:
    return await visit.get(*_parts_of(visit))


async def _put(
    visit: Visit, channel: str, name: str, kind: str, form: ProviderForm
) -> dict[str, Any]:
    numbers = {field: read_number(visit, field) for field in _NUMBERS}
    body = {
        "kind": kind,
        "settings": read_settings(visit, form),
        "secrets": read_secrets(visit, form),
        "is_active": bool(visit.field("is_active")),
        "sandbox": bool(visit.field("sandbox")),
        **{field: value for field, value in numbers.items() if value is not None},
    }
    return (await visit.call("PUT", "providers", channel, name, body=body)).json


def _given(visit: Visit) -> dict[str, Any]:
    """Return the values of the form, to show them again, without secrets."""
    settings = {
        name.removeprefix("settings."): values[-1]
        for name, values in visit.form.items()
        if name.startswith("settings.")
    }
    return _DEFAULTS | {
        "settings": settings,
        "is_active": bool(visit.field("is_active")),
        "sandbox": bool(visit.field("sandbox")),
        **{name: visit.field(name) for name in _NUMBERS},
    }


def _read_address(text: str) -> Any:
    """Return an address: a subscription of a browser is JSON, everything else a text."""
    text = text.strip()
    if not text.startswith("{"):
        return text or None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _parts_of(visit: Visit) -> tuple[str, ...]:
    return ("providers", visit.parts["channel"], visit.parts["name"])


def _path_of(visit: Visit) -> str:
    return visit.app_path(*_parts_of(visit))


_PATH = "/providers/{channel}/{name}"
PAGES = (
    app_page("GET", "/providers", list_providers, Scope.PROVIDERS_READ),
    app_page("GET", "/new-provider", show_new_provider, Scope.PROVIDERS_WRITE),
    app_page("POST", "/new-provider", create_provider, Scope.PROVIDERS_WRITE),
    app_page("GET", _PATH, show_provider, Scope.PROVIDERS_READ),
    app_page("POST", _PATH, save_provider, Scope.PROVIDERS_WRITE),
    app_page("POST", f"{_PATH}/test", test_provider, Scope.PROVIDERS_WRITE),
    app_page("POST", f"{_PATH}/delete", delete_provider, Scope.PROVIDERS_WRITE),
)

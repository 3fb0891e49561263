"""Renders pages: templates with autoescape, and the values that each can use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import msgspec
from markupsafe import Markup

from clarion.admin import navigation
from clarion.admin.assets import Assets
from clarion.admin.browsers import describe_browser
from clarion.admin.paths import path_of
from clarion.admin.permissions import may_open, parse_needs
from clarion.admin.timelines import show_duration
from clarion.clock import to_rfc3339

if TYPE_CHECKING:
    from jinja2 import Environment

    from clarion.admin.visit import Visit

_THOUSAND = 1000
_KEY_BYTES = 16
_APPS_SHOWN = 100


class Renderer:
    """The templates of the package."""

    def __init__(self, assets: Assets) -> None:
        self._assets = assets
        self._environment: Environment | None = None
        self._compiling = asyncio.Lock()

    async def render(self, template: str, visit: Visit, values: Mapping[str, Any]) -> str:
        """Return a page. The first one waits until all templates are compiled, in a thread."""
        if self._environment is None:
            async with self._compiling:
                if self._environment is None:
                    self._environment = await asyncio.to_thread(_compile, self._assets)
        layout = await _layout_of(visit)
        return self._environment.get_template(template).render({**layout, **values})


def _compile(assets: Assets) -> Environment:
    from jinja2 import (  # noqa: PLC0415 - only if somebody opens the dashboard
        Environment,
        PackageLoader,
        StrictUndefined,
    )

    environment = Environment(
        loader=PackageLoader("clarion.admin"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    environment.globals["static"] = assets.path_of
    environment.filters |= FILTERS
    for name in environment.list_templates():
        environment.get_template(name)
    return environment


async def _layout_of(visit: Visit) -> dict[str, Any]:
    """Return what every template can use in addition to its own values."""
    app_id = visit.parts.get("app_id")
    is_signed_in = may_open(None, visit.caller, None)
    apps = (await visit.get("apps", limit=_APPS_SHOWN))["items"] if is_signed_in else []
    # Pages of the server, which name no app, keep the one that was open last.
    app = next((each for each in apps if each["id"] == (app_id or visit.last_app)), None)
    if app_id and app is None and is_signed_in:
        app = await visit.get("apps", app_id)
        apps = [app, *apps]
    app_id = app["id"] if app else app_id

    def can(needs: str) -> bool:
        return may_open(parse_needs(needs), visit.caller, app_id)

    def is_shown(link: navigation.MenuLink) -> bool:
        return may_open(link.needs, visit.caller, app_id)

    return {
        "can": can,
        "caller": visit.caller if is_signed_in else None,
        "app": app,
        "apps": apps,
        "app_path": partial(path_of, "apps", app_id) if app_id else None,
        "admin_path": path_of,
        "path": visit.path,
        "form_fields": _form_fields(visit.csrf_token),
        "csrf_token": visit.csrf_token,
        "links_of_app": [each for each in navigation.OF_APP if app_id and is_shown(each)],
        "links_of_server": list(filter(is_shown, navigation.OF_SERVER)),
        "notice": navigation.NOTICES.get(visit.query.get("notice", "")),
        "problem": None,
        "errors": {},
        "now": visit.clock.now(),
    }


def _form_fields(csrf_token: str) -> Markup:
    """Return what every form sends: the token of the session, and a key by which it counts once."""
    return Markup(
        '<input type="hidden" name="csrf_token" value="{}">'
        '<input type="hidden" name="form_key" value="{}">'
    ).format(csrf_token, token_urlsafe(_KEY_BYTES))


def show_time(moment: str | int | None, *, is_exact: bool = False) -> Markup | str:
    """Return a time in UTC; a script shows it in the zone of the reader."""
    if moment is None:
        return Markup('<span class="none">–</span>')
    found = datetime.fromisoformat(to_rfc3339(moment) if isinstance(moment, int) else moment)
    stamp = found.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    text = found.strftime("%Y-%m-%d %H:%M:%S")
    fraction = f".{found.microsecond // _THOUSAND:03}" if is_exact else ""
    kind = "exact" if is_exact else "short"
    return Markup('<time datetime="{}" data-show="{}">{}{} UTC</time>').format(
        stamp, kind, text, fraction
    )


def show_exact_time(moment: str | int | None) -> Markup | str:
    return show_time(moment, is_exact=True)


def show_number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def show_share(value: float | None) -> str:
    """Return a part of one as a percentage."""
    return "–" if value is None else f"{value * 100:.1f} %"


def show_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def show_words(name: str | None) -> str:
    """Return a code of the API as words: `partially_delivered` → partially delivered."""
    return "" if name is None else name.replace("_", " ")


def show_groups(secret: str) -> str:
    """Return a secret in groups of four, as people copy it."""
    return " ".join(secret[start : start + 4] for start in range(0, len(secret), 4))


def show_query(values: Mapping[str, str | None]) -> str:
    """Return the query of a link, without empty values."""
    given = {name: value for name, value in values.items() if value}
    return f"?{urlencode(given)}" if given else ""


FILTERS = {
    "query": show_query,
    "groups": show_groups,
    "time": show_time,
    "exact_time": show_exact_time,
    "number": show_number,
    "share": show_share,
    "duration": show_duration,
    "pretty": show_json,
    "words": show_words,
    "browser": describe_browser,
}

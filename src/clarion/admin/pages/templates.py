"""A template: its source next to the preview, its versions, and a test message."""

from __future__ import annotations

from typing import Any

from clarion.access.model import Scope
from clarion.admin.forms import fault, read_object, read_text, read_words, show_again
from clarion.admin.mails import hide_remote
from clarion.admin.operations import Refused
from clarion.admin.page import app_page
from clarion.admin.rendering import show_json, show_query
from clarion.admin.samples import ACTOR, TARGET, make_data
from clarion.admin.visit import Visit
from clarion.catalog.model import Channel
from clarion.errors import NotFound
from clarion.http.asgi import Response

_VERSIONS_SHOWN = 10
_ENGLISH = "en"
_SAMPLE: dict[str, Any] = {
    "actor": ACTOR,
    "target": TARGET,
    "user": {"name": "Bo"},
    "count": 1,
}
# An email is shown in a frame of its own, which may run, load and open nothing.
_FRAME_POLICY = (
    b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    b"form-action 'none'; base-uri 'none'; object-src 'none'; frame-ancestors 'self'"
)
_FRAME_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _FRAME_POLICY),
    (b"x-frame-options", b"SAMEORIGIN"),
)
# The page around it is as strict as all others, but for this frame.
_PAGE_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; "
    b"object-src 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS = ((b"content-security-policy", _PAGE_POLICY),)


async def show_template(visit: Visit) -> Response:
    """Show the newest version, or an older one, with a preview by sample data."""
    template = await _find_template(visit)
    type_ = await visit.get("types", template["type"])
    data = make_data(type_["data_schema"], [template])
    sample = show_json({"data": data, **_SAMPLE})
    return await _show_editor(visit, template, sample, await _try_preview(visit, template, sample))


async def save_template(visit: Visit) -> Response:
    """Add a version."""
    language = _language_of(visit)
    try:
        await visit.call(
            "PUT", *_parts_of(visit), query={"language": language}, body=_read_source(visit)
        )
    except Refused as refused:
        return await _show_given(visit, refused)
    return visit.redirect(
        _path_of(visit) + show_query({"language": language}), notice="template-saved"
    )


async def preview_template(visit: Visit) -> Response:
    """Show the preview of the text in the form, or what is wrong with it; nothing is stored."""
    template, sample = await _find_given(visit), visit.field("sample")
    preview = await _try_preview(visit, template, sample)
    return await _show_editor(visit, template, sample, preview)


async def preview_email(visit: Visit) -> Response:
    """Return the email alone, for the frame."""
    try:
        preview = await _preview(visit, _read_source(visit), _read_sample(visit))
    except Refused as refused:
        return await _frame(visit, "", refused.explain())
    return await _frame(visit, hide_remote(preview["body"]), "")


async def send_template(visit: Visit) -> Response:
    """Send an event of the type to one user, over this channel alone: the stored version."""
    try:
        stored = await _find_newest(visit)
        _check_stored(visit, stored)
        sample = _read_sample(visit)
        event = {
            "type": visit.parts["type_name"],
            "recipient": {"user_id": visit.field("user_id").strip()},
            "data": sample.get("data", {}),
            "channels": [visit.parts["channel"]],
            **{name: sample[name] for name in ("actor", "target") if sample.get(name)},
        }
        sent = await visit.post("events", body=event)
    except Refused as refused:
        return await _show_given(visit, refused)
    preview = await _try_preview(visit, stored, visit.field("sample"))
    return await _show_editor(visit, stored, visit.field("sample"), preview, sent=sent)


def _check_stored(visit: Visit, stored: dict[str, Any]) -> None:
    given = _read_source(visit)
    if (given["body"], given["subject"]) != (stored["body"], stored["subject"]):
        raise fault(visit, "body", "was changed: save the template first, then send it")


async def _find_template(visit: Visit) -> dict[str, Any]:
    """Return a version of the template; an empty one if it was not written yet."""
    language, version = _language_of(visit), visit.query.get("version", "")
    if version:
        found = await visit.get(*_parts_of(visit), "versions", language=language, limit=100)
        for each in found["items"]:
            if str(each["version"]) == version:
                chosen: dict[str, Any] = each
                return chosen
        raise fault(visit, "version", "is no longer stored")
    return await _find_newest(visit)


async def _find_newest(visit: Visit) -> dict[str, Any]:
    language = _language_of(visit)
    try:
        return await visit.get(*_parts_of(visit), language=language)
    except Refused as refused:
        await visit.get("types", visit.parts["type_name"])
        if refused.problem.code != NotFound.code:
            raise
        return _empty_template(visit)


def _empty_template(visit: Visit) -> dict[str, Any]:
    return {
        "type": visit.parts["type_name"],
        "channel": visit.parts["channel"],
        "language": _language_of(visit),
        "version": None,
        "subject": "",
        "body": "",
        "variables": [],
        "created_at": None,
    }


async def _find_given(visit: Visit) -> dict[str, Any]:
    """Return the template with the text of the form instead of the stored one."""
    source = _read_source(visit)
    return await _find_newest(visit) | source | {"subject": source["subject"] or ""}


def _read_source(visit: Visit) -> dict[str, Any]:
    return {
        "subject": read_text(visit, "subject") or None,
        "body": read_text(visit, "body"),
        "variables": read_words(visit, "variables"),
    }


def _read_sample(visit: Visit, text: str | None = None) -> dict[str, Any]:
    sample = read_object(visit, "sample", text) or {}
    if unknown := sorted(set(sample) - {"data", *_SAMPLE}):
        raise fault(visit, "sample", f"{unknown[0]} is not one of data, {', '.join(_SAMPLE)}")
    return sample


async def _try_preview(visit: Visit, template: dict[str, Any], sample: str) -> dict[str, Any]:
    """Return the preview of a stored template, or what is wrong with it."""
    if not template["body"]:
        return {"error": "Write a text, and see here what becomes of it."}
    source = {name: template[name] for name in ("body", "variables")}
    source["subject"] = template["subject"] or None
    try:
        return await _preview(visit, source, _read_sample(visit, sample))
    except Refused as refused:
        return {"error": refused.explain()}


async def _preview(visit: Visit, source: dict[str, Any], sample: dict[str, Any]) -> dict[str, Any]:
    body = {name: value for name, value in sample.items() if value is not None} | source
    found = await visit.post(*_parts_of(visit), "preview", body=body, language=_language_of(visit))
    return found | {"error": None}


async def _show_given(visit: Visit, refused: Refused) -> Response:
    """Show the form as it was filled in, and what is wrong instead of a preview."""
    template = await _find_given(visit)
    values = await _values_of(visit, template, visit.field("sample"), {"error": refused.explain()})
    answer = await show_again(visit, "template.html", refused, **values)
    return answer._replace(headers=(*answer.headers, *_PAGE_HEADERS))


async def _show_editor(
    visit: Visit,
    template: dict[str, Any],
    sample: str,
    preview: dict[str, Any],
    sent: dict[str, Any] | None = None,
) -> Response:
    values = await _values_of(visit, template, sample, preview)
    answer = await visit.render("template.html", **values | {"sent": sent})
    return answer._replace(headers=(*answer.headers, *_PAGE_HEADERS))


async def _values_of(
    visit: Visit, template: dict[str, Any], sample: str, preview: dict[str, Any]
) -> dict[str, Any]:
    language = _language_of(visit)
    versions = await visit.get(
        *_parts_of(visit), "versions", language=language, limit=_VERSIONS_SHOWN
    )
    body = template["body"].lstrip()
    return {
        "source": template,
        "sample": sample,
        "preview": preview,
        "versions": versions["items"],
        "is_mail": template["channel"] == Channel.EMAIL and body.startswith("<"),
        "has_subject": template["channel"] != Channel.SMS,
        "language": language,
        "user_id": visit.field("user_id"),
        "sent": None,
    }


async def _frame(visit: Visit, body: str, error: str) -> Response:
    """Return a document that contains an email, or the reason why there is none."""
    if error:
        page = await visit.render("mail_error.html", error=error)
        return page._replace(headers=_FRAME_HEADERS)
    return Response(200, body.encode(), _FRAME_HEADERS)


def _language_of(visit: Visit) -> str:
    return visit.query.get("language") or _ENGLISH


def _parts_of(visit: Visit) -> tuple[str, ...]:
    return ("types", visit.parts["type_name"], "templates", visit.parts["channel"])


def _path_of(visit: Visit) -> str:
    return visit.app_path(*_parts_of(visit))


_PATH = "/types/{type_name}/templates/{channel}"
PAGES = (
    app_page("GET", _PATH, show_template, Scope.TYPES_READ),
    app_page("POST", _PATH, save_template, Scope.TYPES_WRITE),
    app_page("POST", f"{_PATH}/preview", preview_template, Scope.TYPES_READ),
    app_page("POST", f"{_PATH}/email", preview_email, Scope.TYPES_READ),
    app_page("POST", f"{_PATH}/send", send_template, Scope.EVENTS_WRITE),
)

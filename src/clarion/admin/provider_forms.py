"""The fields of the form of a provider, by its kind; a test compares them with the API."""

from __future__ import annotations

from typing import Any, NamedTuple

from clarion.admin.forms import read_lines
from clarion.admin.visit import Visit

_DIGITS = 9


class Field(NamedTuple):
    """A setting or a secret. `input` is text, number, choice, long or lines."""

    name: str
    label: str
    hint: str = ""
    is_required: bool = False
    input: str = "text"
    options: tuple[tuple[str, str], ...] = ()


class ProviderForm(NamedTuple):
    """What providers of a kind need, and how they are tested."""

    label: str
    channels: tuple[str, ...]
    about: str
    settings: tuple[Field, ...] = ()
    secrets: tuple[Field, ...] = ()
    address: str = ""  # what a test message goes to; empty: the settings say it
    can_verify: bool = False  # whether the credentials can be tried without sending


_CA = Field(
    "ca_path", "Certificate authorities", "A PEM file on the server, if not the usual ones."
)
_SECURITY = (("starttls", "STARTTLS"), ("tls", "TLS from the start"), ("none", "none"))

FORMS = {
    "smtp": ProviderForm(
        "Email by SMTP",
        ("email",),
        "Any mail server or mail service.",
        (
            Field("host", "Server", "Like smtp.example.com", is_required=True),
            Field("port", "Port", "Empty: 587 with STARTTLS, 465 with TLS.", input="number"),
            Field("security", "Encryption", input="choice", options=_SECURITY),
            Field("from", "From", "Like Shop <no-reply@example.com>", is_required=True),
            Field("reply_to", "Reply to"),
            Field("username", "Username"),
            _CA,
        ),
        (Field("password", "Password"),),
        address="An email address",
        can_verify=True,
    ),
    "twilio": ProviderForm(
        "Text messages by Twilio",
        ("sms",),
        "An account at Twilio, or a service with its API.",
        (
            Field("account_sid", "Account SID", "Begins with AC.", is_required=True),
            Field("from", "From", "A number, a name, or a messaging service.", is_required=True),
            Field("base_url", "Address of the API", "Empty: that of Twilio."),
        ),
        (Field("auth_token", "Auth token", is_required=True),),
        address="A phone number, like +4915112345678",
        can_verify=True,
    ),
    "apns": ProviderForm(
        "Push by Apple (APNs)",
        ("push",),
        "For apps on iPhone, iPad and Mac.",
        (
            Field("team_id", "Team id", is_required=True),
            Field("key_id", "Key id", is_required=True),
            Field("topic", "Bundle id", is_required=True),
            Field("base_url", "Address", "Empty: that of Apple for production."),
            _CA,
        ),
        (Field("key", "Key", "The .p8 file from Apple.", is_required=True, input="long"),),
        address="The token of a device",
        can_verify=True,
    ),
    "fcm": ProviderForm(
        "Push by Google (FCM)",
        ("push",),
        "For apps on Android.",
        (
            Field("project_id", "Project id", is_required=True),
            Field("base_url", "Address", "Empty: that of Google."),
            _CA,
        ),
        (
            Field(
                "service_account",
                "Service account",
                "The JSON file from Google.",
                is_required=True,
                input="long",
            ),
        ),
        address="The token of a device",
        can_verify=True,
    ),
    "webpush": ProviderForm(
        "Push to browsers (Web Push)",
        ("push",),
        "Clarion creates the key; browsers subscribe with its public part.",
        (
            Field(
                "subject",
                "Contact",
                "A contact for push services: mailto: or https:",
                is_required=True,
            ),
        ),
        address='A subscription: {"endpoint": …, "keys": …}',
    ),
    "webhook": ProviderForm(
        "Webhook",
        ("webhook",),
        "Your own server gets each notification, signed.",
        (
            Field("url", "URL", is_required=True),
            Field("types", "Types", "A line each. Empty: all.", input="lines"),
        ),
        (Field("secret", "Secret", "Like whsec_…; if empty, one is created and shown once."),),
    ),
    "apprise": ProviderForm(
        "Another service (Apprise)",
        ("push", "email", "sms", "webhook"),
        "More than a hundred services, as Apprise addresses them.",
        (),
        (
            Field(
                "url",
                "Address",
                "As Apprise writes it, with the credentials in it.",
                is_required=True,
            ),
        ),
    ),
}


def read_settings(visit: Visit, form: ProviderForm) -> dict[str, Any]:
    """Return the settings of the form; the API refuses numbers that are not valid."""
    found: dict[str, Any] = {}
    for field in form.settings:
        name, text = f"settings.{field.name}", visit.field(f"settings.{field.name}").strip()
        if field.input == "lines":
            found[field.name] = read_lines(visit, name)
        elif text:
            is_number = field.input == "number" and text.isdecimal() and len(text) <= _DIGITS
            found[field.name] = int(text) if is_number else text
    return found


def read_secrets(visit: Visit, form: ProviderForm) -> dict[str, str]:
    """Return the secrets that were filled in; the others stay as they are."""
    given = {field.name: visit.field(f"secrets.{field.name}") for field in form.secrets}
    return {
        name: text.replace("\r\n", "\n").strip() for name, text in given.items() if text.strip()
    }

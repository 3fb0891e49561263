"""A user as requests give it and responses show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType, structs

from clarion.fields import LanguageTag, Moment, TimezoneName, check_value, documented, instead
from clarion.http.bodies import Body, Checks, collect, given_checks
from clarion.http.shapes import to_milliseconds
from clarion.http.views import Timestamp, View
from clarion.people.fields import (
    ATTRIBUTES_LIMIT,
    CONSENTS_LIMIT,
    EMAIL,
    NAME,
    PHONE,
    PURPOSE,
    TAG,
    TAGS_LIMIT,
    check_attributes,
    check_consent,
    check_field,
    check_object,
    check_profile,
)
from clarion.people.model import Consent, User, UserStatus
from clarion.people.profile import (
    Backup,
    BillingAddress,
    Business,
    Enterprise,
    Growth,
    Intelligence,
    Profile,
    ProfileGroup,
)

T = TypeVar("T")
# Null stands for the default; a field that is left out is unset.
Given: TypeAlias = T | UnsetType | None
_GROUPS = Profile.__struct_fields__
_METADATA = "Free fields of your own, at most 16 KiB. Kept and returned, never searched."
_ATTRIBUTES = "Your own fields by name, at most 16 KiB; segments can select by them."
_CONSENT = "What the user has consented to, or not, by a name of your choice: `newsletter`."
_LAST_LOGIN = "When the user last signed in, as your system reports it."
_EMAIL = "Unique within the app; upper and lower case make no difference."
_STATUS = instead(
    description="Inactive users receive nothing.",
    anyOf=[{"$ref": "#/components/schemas/UserStatus"}, {"type": "null"}],
)
Short = Annotated[str, Meta(min_length=1, max_length=200)]


def _describe(group: type[ProfileGroup]) -> Meta:
    return Meta(description=group.__doc__)


class ConsentBody(Body):
    """A consent that was given or refused."""

    granted: Annotated[bool, Meta(description="False: the user refused, or withdrew it.")]
    at: Annotated[Moment | None, Meta(description="When (RFC 3339). Default: now.")] = None
    source: Annotated[Short | None, Meta(description="Where: a form, a page, a contract.")] = None
    version: Annotated[Short | None, Meta(description="Which version of your text they saw.")] = (
        None
    )


class ConsentView(View):
    """A consent that was given or refused, and when."""

    granted: bool
    """Whether the user agreed."""
    at: Timestamp
    """When the user decided."""
    source: str | None
    """Where: a form, a page, a contract."""
    version: str | None
    """Which version of your text they saw."""


class UserBody(Body):
    """The fields of a user. Null resets a field to its default."""

    name: Annotated[Given[str], NAME] = UNSET
    """The name of the user, as templates show it; 1 to 200 characters."""
    email: Annotated[Given[str], EMAIL, Meta(description=_EMAIL)] = UNSET
    phone: Annotated[Given[str], PHONE] = UNSET
    """With the country code; stored as E.164."""
    language: Given[LanguageTag] = UNSET
    """The language of texts, a tag like pt-BR."""
    timezone: Given[TimezoneName] = UNSET
    """The time zone, an IANA name like Europe/Berlin."""
    # Any text, so that a wrong one does not hide the faults of other fields.
    status: Annotated[Given[str], _STATUS] = UNSET
    tags: Annotated[Given[list[Annotated[str, TAG]]], documented(maxItems=TAGS_LIMIT)] = UNSET
    """Labels by which segments and lists select users, at most 50."""
    attributes: Annotated[
        Given[dict[str, Any]],
        documented(maxProperties=ATTRIBUTES_LIMIT),
        Meta(description=_ATTRIBUTES),
    ] = UNSET
    metadata: Annotated[Given[dict[str, Any]], Meta(description=_METADATA)] = UNSET
    consent: Annotated[
        Given[dict[Annotated[str, PURPOSE], ConsentBody | None]],
        documented(maxProperties=CONSENTS_LIMIT),
        Meta(description=_CONSENT),
    ] = UNSET
    billing_address: Annotated[Given[BillingAddress], _describe(BillingAddress)] = UNSET
    business: Annotated[Given[Business], _describe(Business)] = UNSET
    growth: Annotated[Given[Growth], _describe(Growth)] = UNSET
    enterprise: Annotated[Given[Enterprise], _describe(Enterprise)] = UNSET
    backup: Annotated[Given[Backup], _describe(Backup)] = UNSET
    intelligence: Annotated[Given[Intelligence], _describe(Intelligence)] = UNSET
    last_login_at: Annotated[Given[Moment], Meta(description=_LAST_LOGIN)] = UNSET

    def checks(self, now: int = 0) -> Checks:
        """Return the checks of the fields that are given; `now` is when they were."""
        return given_checks(self, partial(_check, now))


class UserView(View, kw_only=True):
    """A user of the calling app. A group of fields that is not set is left out."""

    id: str
    """The id that your application gave the user."""
    name: str | None
    """The name of the user, as templates show it."""
    email: Annotated[str | None, Meta(description=_EMAIL)]
    phone: str | None
    """The phone number, in E.164."""
    language: str
    """The language of texts, a tag like pt-BR."""
    timezone: str
    """The time zone, an IANA name."""
    status: UserStatus
    """Inactive users receive nothing."""
    tags: list[str]
    """Labels by which segments and lists select users."""
    attributes: Annotated[dict[str, Any], Meta(description=_ATTRIBUTES)]
    metadata: Annotated[dict[str, Any], Meta(description=_METADATA)]
    consent: Annotated[dict[str, ConsentView], Meta(description=_CONSENT)]
    billing_address: BillingAddress | UnsetType = UNSET
    """Where invoices are sent."""
    business: Business | UnsetType = UNSET
    """What bookkeeping and tax law ask for."""
    growth: Growth | UnsetType = UNSET
    """How the user came, and how content they are."""
    enterprise: Enterprise | UnsetType = UNSET
    """The organisation of the user."""
    backup: Backup | UnsetType = UNSET
    """What the user chose for backups in your system."""
    intelligence: Intelligence | UnsetType = UNSET
    """Figures about the user, computed by your systems."""
    last_login_at: Annotated[Timestamp | None, Meta(description=_LAST_LOGIN)]
    last_seen_at: Annotated[
        Timestamp | None,
        Meta(description="When the user last used a token, to the minute."),
    ]
    created_at: Timestamp
    """When the user was created."""
    updated_at: Timestamp
    """When the user changed last."""


def view_user(user: User) -> UserView:
    return UserView.of(
        user,
        consent={name: ConsentView.of(each) for name, each in user.consent.items()},
        **{
            name: UNSET if group is None else group
            for name, group in structs.asdict(user.profile).items()
        },
    )


def read_fields(data: UserBody, now: int) -> dict[str, Any]:
    """Return the checked values of the fields that a body gives; `InvalidFields` names faults."""
    return collect(data.checks(now))


def make_user(app_id: str, user_id: str, given: dict[str, Any], now: int) -> User:
    """Return the user with these fields; those left out have their defaults."""
    user = User(app_id=app_id, id=user_id, created_at=now, updated_at=now)
    consent = {name: each for name, each in (given.get("consent") or {}).items() if each}
    return _replace(user, {**given, "consent": consent}, now)


def update_user(user: User, given: dict[str, Any], now: int) -> User:
    """Return the user with these fields changed; `InvalidFields` if one is too large now.

    Attributes, metadata and consent are merged by name, and null removes one. Other fields are
    replaced, also a group.
    """
    merged = {
        name: _merge(name, getattr(user, name), given[name])
        for name in _MERGED
        if given.get(name) is not None
    }
    return _replace(user, given | merged, now)


def _replace(user: User, given: dict[str, Any], now: int) -> User:
    groups = {name: given[name] for name in _GROUPS if name in given}
    plain = {
        name: {} if value is None and name in _MERGED else value
        for name, value in given.items()
        if name not in _GROUPS
    }
    profile = user.profile
    if groups:
        profile = structs.replace(profile, **groups)
        check_value(next(iter(groups)), check_profile, profile)
    return replace(user, **plain, profile=profile, updated_at=now)


_MERGED: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "attributes": check_attributes,
    "metadata": check_object,
    "consent": check_consent,
}


def _merge(name: str, old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    merged = {key: value for key, value in {**old, **new}.items() if value is not None}
    return check_value(name, _MERGED[name], merged)


def _check(now: int, name: str, value: Any) -> Any:
    if name in _GROUPS or (value is None and name in _MERGED):
        return value
    if name == "last_login_at":
        return to_milliseconds(value, name)
    if name == "consent":
        check_consent(value)
        return {each: _read_consent(each, given, now) for each, given in value.items()}
    return check_field(name, value)


def _read_consent(name: str, given: ConsentBody | None, now: int) -> Consent | None:
    if given is None:
        return None
    moment = to_milliseconds(given.at, f"consent.{name}.at")
    return Consent(
        granted=given.granted,
        at=now if moment is None else moment,
        source=given.source,
        version=given.version,
    )

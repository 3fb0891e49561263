"""The optional groups of a user's fields. An absent group or field takes no space in the store.

They are stored as one JSON object: a record from before a field was added has its default.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta

LIST_LIMIT = 100
Text = Annotated[str, Meta(min_length=1, max_length=200)]
Country = Annotated[str, Meta(pattern="^[A-Z]{2}$", max_length=2)]
Score = Annotated[int, Meta(ge=0, le=10)]
Days = Annotated[int, Meta(ge=1, le=36_500)]
Probability = Annotated[float, Meta(ge=0, le=1)]
References = Annotated[list[Text], Meta(max_length=LIST_LIMIT)]


class ProfileGroup(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """Fields that belong together; each is optional."""


class BillingAddress(ProfileGroup, frozen=True):
    """Where invoices are sent."""

    name: Annotated[Text | None, Meta(description="The person to whom invoices are sent.")] = None
    company: Text | None = None
    """The company to which invoices are sent."""
    line1: Annotated[Text | None, Meta(description="Street and number.")] = None
    line2: Text | None = None
    """What else the address needs: floor, building, department."""
    city: Text | None = None
    """The city or town."""
    region: Annotated[Text | None, Meta(description="State, province or county.")] = None
    postal_code: Text | None = None
    """The postal code, as the country writes it."""
    country: Annotated[Country | None, Meta(description="ISO 3166: two capitals, like DE.")] = None


class SubscriptionStatus(StrEnum):
    """How far a user's subscription is paid."""

    NONE = "none"
    TRIAL = "trial"
    ACTIVE = "active"
    PAST_DUE = "past_due"
    CANCELLED = "cancelled"


class Business(ProfileGroup, frozen=True):
    """What bookkeeping and tax law ask for."""

    customer_id: Annotated[
        Text | None, Meta(description="The id of the user in your billing system.")
    ] = None
    subscription_status: SubscriptionStatus | None = None
    """How far the subscription is paid."""
    vat_number: Annotated[Text | None, Meta(description="VAT number in the EU.")] = None
    tax_id: Annotated[Text | None, Meta(description="Tax id outside the EU.")] = None
    company_registration: Annotated[
        Text | None, Meta(description="Number in the company register.")
    ] = None


class Growth(ProfileGroup, frozen=True):
    """How the user came, and how content they are."""

    referral_code: Annotated[
        Text | None, Meta(description="The code with which the user refers others.")
    ] = None
    referred_by: Annotated[
        Text | None, Meta(description="The code or user id by which the user came.")
    ] = None
    affiliate_id: Text | None = None
    """The partner who brought the user."""
    nps: Annotated[Score | None, Meta(description="The last answer to a Net Promoter survey.")] = (
        None
    )


class Enterprise(ProfileGroup, frozen=True):
    """The organisation of the user. References only: secrets do not belong here."""

    team_id: Text | None = None
    """The team of the user in your system."""
    organization_role: Text | None = None
    """What the user is in the organisation, like `owner`."""
    api_key_ids: Annotated[
        References, Meta(description="The ids of the user's API keys in your system.")
    ] = []
    webhook_ids: Annotated[
        References, Meta(description="The ids of the user's webhooks in your system.")
    ] = []
    integrations: Annotated[
        dict[Text, Text],
        Meta(
            max_length=LIST_LIMIT,
            description="The user's account in other services, by the name of the service.",
        ),
    ] = {}


class BackupFrequency(StrEnum):
    """How often a backup is made."""

    HOURLY = "hourly"
    DAILY = "daily"
    WEEKLY = "weekly"
    MONTHLY = "monthly"


class Backup(ProfileGroup, frozen=True):
    """What the user chose for backups in your system."""

    auto_backup: bool | None = None
    """Whether backups are made automatically."""
    frequency: BackupFrequency | None = None
    """How often a backup is made."""
    retention_days: Days | None = None
    """For how many days a backup is kept."""


class Intelligence(ProfileGroup, frozen=True):
    """Figures about the user, computed by your systems."""

    credits: Annotated[float | None, Meta(description="Balance of the account.")] = None
    lifetime_value: Annotated[float | None, Meta(description="Revenue from the user so far.")] = (
        None
    )
    churn_risk: Annotated[
        Probability | None, Meta(description="Probability that the user leaves, 0 to 1.")
    ] = None
    billing_history: Annotated[References, Meta(description="The ids of invoices.")] = []


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The optional groups of a user."""

    billing_address: BillingAddress | None = None
    business: Business | None = None
    growth: Growth | None = None
    enterprise: Enterprise | None = None
    backup: Backup | None = None
    intelligence: Intelligence | None = None

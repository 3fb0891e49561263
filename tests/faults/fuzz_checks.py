"""A check for schemathesis: what the schema allows is refused only for what it cannot say.

Lengths, patterns, ranges, choices and required fields belong into the schema, so that clients can
be generated from it and do not have to try.
"""

import re
from typing import Any

import schemathesis

# What a request must be beyond its form.
REASONS = (
    # Something must exist, or must not.
    r"there is no ",
    r"must be one of social, safety, ",
    r"must be the app of the key",
    r"must be at or before .+ when the calling API key expires",
    # A list of providers names this one, and schemathesis takes it from there.
    r"and not be `gateway`",
    r"needs an app: ",
    r"is required: send the id of an app",
    r"must be the value of `next` in a page",
    r"is higher than your own",
    r"is not the username for this link",
    r"is among the 3,000 most common passwords",
    # A list of names that grows from year to year.
    r"must be an IANA time zone name",
    # The present time.
    r"must be in the future",
    r"must be within a year",
    r"must be in the years 1 to 9999",
    # Two fields together.
    r"must not be given together with",
    r"must be given together with",
    r"must be given for a segment only",
    r"is required: an explanation is for one user of the segment",
    r"must be given for an event to",
    r"must be after ",
    r"must have either ",
    r"is required with ",
    r"must be left out with ",
    r"is for platform web only",
    r"must not be the username",
    r"differs between query and body",
    r"must be some of .+ for ",
    r"is not known of ",
    r"must be before `to`",
    r"before `to`; choose a longer interval",
    # Sizes in bytes, and depths.
    r"bytes as JSON",
    r"bytes together",
    r"must have (at most [\d,]+|\d+ to \d+) bytes",
    r"levels deep",
    r"must not contain zero characters",
    # Languages of their own: filters, templates, keys, numbers of phones, addresses.
    r"at character \d+",
    r"is not a valid template",
    r"is missing, but the (subject|body) uses it",
    r"must be a JSON Schema",
    r"must be a phone number",
    r"must be a public key in PEM",
    r"must be networks like",
    r"must be a point ",
    r"must have origins like",
    # For JSON Schema, 1.0 is an integer.
    r"must be an integer( or .+)?, not a number",
)
NOT_IN_SCHEMAS = re.compile("|".join(REASONS))
# Each kind of provider has settings of its own.
OF_PROVIDERS = re.compile(r"(settings|secrets|to|kind)\b")


@schemathesis.check
def only_refused_for_what_schemas_cannot_say(_ctx: Any, response: Any, case: Any) -> None:
    """Every reason of a refusal is one that JSON Schema cannot express."""
    if response.status_code != 422 or case.meta is None:
        return
    if not case.meta.generation.mode.is_positive:
        return
    problem = response.json()
    faults = [
        f"{each['field']}: {each['reason']}"
        for each in problem["errors"]
        if not NOT_IN_SCHEMAS.search(each["reason"]) and not is_set_elsewhere(case, each["field"])
    ]
    assert not faults, f"refused although the schema allows it: {faults}"


def is_set_elsewhere(case: Any, field: str) -> bool:
    """Whether a kind of provider, or a type with its templates, says what the field must be."""
    if "/providers/" in case.operation.path:
        return OF_PROVIDERS.match(field) is not None
    return field.startswith("data.")

"""The forms of providers have the fields that the API takes."""

import msgspec
import pytest

from clarion.admin.provider_forms import FORMS, Field
from clarion.channels.kind_table import KINDS
from clarion.channels.kinds import ProviderKind

# Clarion makes and rotates these itself.
MADE = {"webpush": {"private_key"}, "webhook": {"previous_secret", "previous_until"}}
# Required in the store, and made if they are not given.
OPTIONAL = {("webhook", "secret")}


def names_of(struct: type[msgspec.Struct]) -> dict[str, bool]:
    """Return the fields of a struct, and whether each is required."""
    return {field.encode_name: field.required for field in msgspec.structs.fields(struct)}


def test_every_kind_but_that_of_tests_has_a_form() -> None:
    assert set(FORMS) == set(KINDS) - {"stub"}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_the_fields_of_its_kind(name: str) -> None:
    form, kind = FORMS[name], KINDS[name]
    assert {each.name: each.is_required for each in form.settings} == names_of(kind.settings)
    secrets = names_of(kind.secrets)
    made = MADE.get(name, set())
    assert {each.name for each in form.secrets} == set(secrets) - made
    for each in form.secrets:
        assert each.is_required == (secrets[each.name] and (name, each.name) not in OPTIONAL)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_for_the_channels_of_its_kind(name: str) -> None:
    assert set(FORMS[name].channels) == {*KINDS[name].channels} - {"stub", "in_app"}
    assert FORMS[name].can_verify == (KINDS[name].verify is not None)
    assert bool(FORMS[name].address) == needs_address(KINDS[name])


def needs_address(kind: ProviderKind) -> bool:
    return kind.needs_address and "webhook" not in kind.channels


def test_a_choice_has_options_and_nothing_else_has() -> None:
    fields: list[Field] = [
        each for form in FORMS.values() for each in (*form.settings, *form.secrets)
    ]
    for each in fields:
        assert bool(each.options) == (each.input == "choice"), each

"""Effective preferences and their sources; they agree with what is decided for an event."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from clarion.catalog import built_in
from clarion.catalog.model import (
    Category,
    Channel,
    NotificationType,
    Priority,
)
from clarion.events.decide.case import Case
from clarion.events.decide.rules import check_preferences
from clarion.people import preferences as rules
from clarion.people.model import DEFAULT_QUIET_HOURS, Preferences
from clarion.people.preferences import PreferenceSource, Setting
from tests.factories import NOW, make_type, make_user

ON, OFF = True, False
TOGGLES = st.dictionaries(st.sampled_from(Channel), st.booleans())
PREFERENCES = st.builds(
    Preferences,
    quiet_hours=st.none() | st.just(DEFAULT_QUIET_HOURS) | st.tuples(*[st.booleans()] * 24),
    categories=st.dictionaries(st.sampled_from(Category), st.booleans()),
    types=st.dictionaries(st.sampled_from(["A", "B"]), TOGGLES),
)
TYPES = st.builds(
    make_type,
    st.sampled_from(["A", "C"]),
    category=st.sampled_from(Category),
    user_can_disable=st.booleans(),
)


def decide(preferences: Preferences, definition: NotificationType, channel: Channel) -> bool:
    """Return whether the rules allow a channel."""
    case = Case(
        now=NOW,
        type=definition,
        priority=Priority.MEDIUM,
        channels=(channel,),
        templates=frozenset(Channel),
        available=frozenset(Channel),
        expires_at=None,
        user=make_user(preferences=preferences),
        addresses=frozenset(Channel),
    )
    return check_preferences(case, channel) is None


@given(PREFERENCES, TYPES, st.sampled_from(Channel))
def test_what_is_explained_is_what_is_decided(
    preferences: Preferences, definition: NotificationType, channel: Channel
) -> None:
    explained = rules.explain_channel(preferences, definition, channel)
    assert explained.value is decide(preferences, definition, channel)
    assert explained.set_to is preferences.types.get(definition.type, {}).get(channel)


@given(PREFERENCES, TYPES, st.sampled_from(Channel))
def test_leaving_out_defaults_changes_no_decision(
    preferences: Preferences, definition: NotificationType, channel: Channel
) -> None:
    stored = rules.drop_defaults(preferences)
    assert decide(stored, definition, channel) is decide(preferences, definition, channel)
    for each in built_in.CATEGORIES.values():
        before = rules.explain_category(preferences, each).value
        assert rules.explain_category(stored, each).value is before
    hours = rules.explain_quiet_hours(preferences).value
    assert rules.explain_quiet_hours(stored).value == hours


@given(PREFERENCES)
def test_only_non_default_values_are_stored(preferences: Preferences) -> None:
    stored = rules.drop_defaults(preferences)
    assert rules.drop_defaults(stored) == stored
    assert stored.quiet_hours != DEFAULT_QUIET_HOURS
    assert not any(stored.categories.values())
    for toggles in stored.types.values():
        assert toggles
        assert all(on is (channel is Channel.SMS) for channel, on in toggles.items())


def test_the_source_of_a_category_is_named() -> None:
    preferences = Preferences(categories={Category.SAFETY: False, Category.NEWS: False})
    for category, expected in (
        (Category.SOCIAL, Setting(ON, PreferenceSource.DEFAULT)),
        (Category.NEWS, Setting(OFF, PreferenceSource.USER, OFF)),
        (Category.SAFETY, Setting(ON, PreferenceSource.MANDATORY, OFF)),
    ):
        definition = built_in.CATEGORIES[category]
        assert rules.explain_category(preferences, definition) == expected


def test_the_source_of_a_channel_is_named() -> None:
    preferences = Preferences(
        categories={Category.NEWS: False}, types={"T": {Channel.PUSH: False, Channel.SMS: True}}
    )
    for changes, channel, expected in (
        ({}, Channel.EMAIL, Setting(ON, PreferenceSource.DEFAULT)),
        ({}, Channel.PUSH, Setting(OFF, PreferenceSource.USER, OFF)),
        ({}, Channel.SMS, Setting(ON, PreferenceSource.USER, ON)),
        ({"category": Category.NEWS}, Channel.SMS, Setting(OFF, PreferenceSource.CATEGORY, ON)),
        ({"category": Category.SAFETY}, Channel.PUSH, Setting(ON, PreferenceSource.MANDATORY, OFF)),
        ({"user_can_disable": False}, Channel.PUSH, Setting(ON, PreferenceSource.TYPE, OFF)),
        ({"is_active": False}, Channel.EMAIL, Setting(OFF, PreferenceSource.TYPE)),
    ):
        assert rules.explain_channel(preferences, make_type("T", **changes), channel) == expected


def test_the_source_of_language_time_zone_and_quiet_hours_is_named() -> None:
    plain, set_up = make_user(), make_user(language="de", timezone="Europe/Berlin")
    assert rules.explain_language(plain) == Setting("en", PreferenceSource.DEFAULT)
    assert rules.explain_language(set_up) == Setting("de", PreferenceSource.USER, "de")
    assert rules.explain_timezone(plain) == Setting("UTC", PreferenceSource.DEFAULT)
    assert rules.explain_timezone(set_up).source is PreferenceSource.USER
    quiet = (True,) * 24
    assert rules.explain_quiet_hours(Preferences()).value == DEFAULT_QUIET_HOURS
    assert rules.explain_quiet_hours(Preferences(quiet_hours=quiet)) == Setting(
        quiet, PreferenceSource.USER, quiet
    )


NEWS = make_type("T", category=Category.NEWS)


def replace(old: Preferences, **given: object) -> Preferences:
    return rules.replace_preferences({"T": NEWS}, old, **given)


def read(preferences: Preferences) -> dict[Channel, bool]:
    """Return the toggles of a type as the API shows them."""
    return {
        channel: rules.explain_channel(preferences, NEWS, channel).value
        for channel in rules.TOGGLED_CHANNELS
    }


toggles = st.dictionaries(st.sampled_from(rules.TOGGLED_CHANNELS), st.booleans())


@given(toggles, st.sampled_from([{}, {Category.NEWS: False}]))
def test_putting_back_what_was_read_changes_nothing(
    own: dict[Channel, bool], of_categories: dict[str, bool]
) -> None:
    old = rules.update(Preferences(), categories=of_categories, types={"T": own})
    categories = {str(each): old.categories.get(each, True) for each in Category}
    assert replace(old, categories=categories, types={"T": read(old)}) == old


def test_a_toggle_is_chosen_if_its_category_does_not_say_the_same_before_and_after() -> None:
    off = {"T": {Channel.PUSH: False}}
    turned_off = replace(Preferences(), categories={Category.NEWS: False}, types=off)
    assert turned_off.types == off
    category_off = Preferences(categories={Category.NEWS: False})
    assert replace(category_off, categories={Category.NEWS: False}, types=off).types == {}
    assert replace(category_off, categories={Category.NEWS: True}, types=off).types == off
    on = {"T": {Channel.SMS: True}}
    assert replace(category_off, categories={Category.NEWS: False}, types=on).types == on


def test_replacing_resets_what_is_left_out() -> None:
    old = Preferences(categories={Category.NEWS: False}, types={"T": {Channel.PUSH: False}})
    assert replace(old) == Preferences()
    assert replace(old, types={"T": None}) == Preferences()


def test_merging_sets_removes_and_keeps_toggles() -> None:
    assert rules.merge({1: True, 2: True, 3: False}, {2: None, 3: True}) == {1: True, 3: True}
    assert rules.merge({1: True}, None) == {}
    old = {"A": {Channel.PUSH: False, Channel.SMS: True}, "B": {Channel.PUSH: False}, "C": {}}
    new = {"A": {Channel.PUSH: None, Channel.EMAIL: False}, "B": None}
    assert rules.merge_types(old, new) == {
        "A": {Channel.SMS: True, Channel.EMAIL: False},
        "B": {},
        "C": {},
    }
    assert rules.merge_types(old, None) == {}


def test_an_update_merges_what_is_given_and_stores_no_defaults() -> None:
    old = Preferences(
        quiet_hours=(True,) * 24,
        categories={Category.NEWS: False},
        types={"T": {Channel.PUSH: False}},
    )
    assert rules.update(old) == old
    assert rules.update(old, quiet_hours=None, categories=None, types=None) == Preferences()
    assert rules.update(
        old,
        quiet_hours=DEFAULT_QUIET_HOURS,
        categories={Category.SOCIAL: False, Category.NEWS: True},
        types={"T": {Channel.SMS: True}},
    ) == Preferences(
        categories={Category.SOCIAL: False}, types={"T": {Channel.PUSH: False, Channel.SMS: True}}
    )


def test_preferences_are_stored_without_what_is_empty_and_read_either_way() -> None:
    assert msgspec.json.encode(Preferences()) == b"{}"
    for text in ("{}", '{"quiet_hours":null,"categories":{},"types":{}}'):
        assert msgspec.json.decode(text, type=Preferences) == Preferences()

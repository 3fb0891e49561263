"""Changes that a read may have come too early for."""

from clarion.nodes.recent_changes import LIMIT, RecentChanges


def test_only_later_changes_of_the_key_count() -> None:
    changes = RecentChanges()
    changes.note("a")
    since = changes.count
    changes.note("b")
    assert (changes.has("a", since), changes.has("b", since)) == (False, True)
    changes.note("a")
    assert changes.has("a", since)


def test_what_may_have_changed_everything_has_changed_each_key() -> None:
    changes = RecentChanges()
    since = changes.count
    changes.note_all()
    assert changes.has("a", since)
    assert not changes.has("a", changes.count)


def test_the_last_ones_are_kept_and_before_them_any_key_may_have_changed() -> None:
    changes = RecentChanges()
    for number in range(LIMIT + 1):
        changes.note(number)
    assert changes.has(0, 0)
    assert changes.has("another", 0)
    assert not changes.has(0, 1)
    assert not changes.has("another", 1)
    assert changes.has(1, 0)
    assert changes.has(1, 1)
    assert changes.has(LIMIT, LIMIT)
    assert len(changes._numbers) == LIMIT

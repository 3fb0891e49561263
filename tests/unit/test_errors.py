"""One tree of errors, each with a code, a status and a sentence."""

import re
from collections.abc import Iterator

import pytest

import clarion.errors
from clarion.errors import ClarionError, FieldFault, InvalidFields, SettingsError, TooManyRequests


def below(kind: type[ClarionError]) -> Iterator[type[ClarionError]]:
    for child in kind.__subclasses__():
        if child.__module__ == "clarion.errors":
            yield child
            yield from below(child)


DRAWING = clarion.errors.__doc__ or ""
KINDS = list(below(ClarionError))
ANSWERED = [kind for kind in KINDS if re.search(rf"─ {kind.__name__} +\d", DRAWING)]


def test_the_drawing_shows_every_error() -> None:
    drawn = re.findall(r"─ (\w+)", DRAWING)
    assert sorted(drawn) == sorted(kind.__name__ for kind in KINDS)


@pytest.mark.parametrize("kind", ANSWERED, ids=lambda kind: kind.__name__)
def test_the_drawing_is_true(kind: type[ClarionError]) -> None:
    end = r" +\(retryable\)" if kind.retryable else "$"
    pattern = rf"─ {kind.__name__} +{kind.status} +{kind.code}{end}"
    assert re.search(pattern, DRAWING, re.MULTILINE)


def test_codes_are_stable_words_each_given_once() -> None:
    codes = [kind.code for kind in ANSWERED]
    assert len(set(codes)) == len(codes) >= 14
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_is_a_sentence(kind: type[ClarionError]) -> None:
    assert (kind.__doc__ or "").endswith(".")


def test_without_a_detail_the_sentence_is_the_detail() -> None:
    assert (
        clarion.errors.NotFound().detail == "The path, or the object with this id, does not exist."
    )
    assert clarion.errors.NotFound("No key.").detail == str(clarion.errors.NotFound("No key."))


def test_fields_are_named_in_the_detail() -> None:
    error = InvalidFields(FieldFault("a", "is wrong"), FieldFault("b", "is worse"))
    assert error.detail == "a: is wrong; b: is worse"


def test_settings_faults_are_one_a_line() -> None:
    assert SettingsError(["one", "two"]).detail == "one\ntwo"


def test_too_many_requests_says_when_to_retry() -> None:
    assert TooManyRequests(7).retry_after_s == 7

"""Time-based one-time passwords, by the vectors of RFC 6238, and recovery codes."""

from urllib.parse import parse_qs, urlsplit

import pytest

from clarion.access.administrators import recovery_codes, totp

SECRET = b"12345678901234567890"
STEP = totp.STEP_MS


@pytest.mark.parametrize(
    ("seconds", "code"),
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_are_those_of_the_rfc(seconds: int, code: str) -> None:
    assert totp.code_at(SECRET, seconds // 30) == code
    assert totp.find_step(SECRET, code, seconds * 1000, 0) == seconds // 30


@pytest.mark.parametrize(
    ("offset", "is_accepted"), [(-2, False), (-1, True), (0, True), (1, True), (2, False)]
)
def test_a_clock_may_be_one_step_off(offset: int, *, is_accepted: bool) -> None:
    code = totp.code_at(SECRET, 1000 + offset)
    assert (totp.find_step(SECRET, code, 1000 * STEP, 0) is not None) is is_accepted


def test_a_step_that_was_used_is_not_found_again() -> None:
    code = totp.code_at(SECRET, 1000)
    assert totp.find_step(SECRET, code, 1000 * STEP, 999) == 1000
    assert totp.find_step(SECRET, code, 1000 * STEP, 1000) is None


@pytest.mark.parametrize("code", ["", "abc", "28708", "2870822", "２８７０８２", "\ud800"])
def test_nonsense_is_no_code(code: str) -> None:
    assert totp.find_step(SECRET, code, 59_000, 0) is None


def test_a_code_may_be_written_with_a_space() -> None:
    assert totp.find_step(SECRET, "287 082", 59_000, 0) == 1


def test_the_uri_holds_the_secret_and_the_name() -> None:
    uri = urlsplit(totp.uri_of(SECRET, "ana@example.com", "Clarion"))
    assert (uri.scheme, uri.netloc) == ("otpauth", "totp")
    assert uri.path == "/Clarion%3Aana%40example.com"
    query = parse_qs(uri.query)
    assert query["issuer"] == ["Clarion"]
    assert totp.decode_secret(query["secret"][0]) == SECRET
    assert len(totp.new_secret()) == 20


def test_recovery_codes_are_different_and_found_however_they_are_typed() -> None:
    codes = recovery_codes.new_codes()
    assert len(set(codes)) == recovery_codes.COUNT
    stored = recovery_codes.hash_codes("ana", codes[:2])
    assert recovery_codes.find_code(codes[1], stored) == stored[1]
    assert recovery_codes.find_code(codes[1].upper().replace("-", " "), stored) == stored[1]
    assert recovery_codes.find_code(codes[2], stored) is None
    assert recovery_codes.find_code(codes[2], ()) is None


def test_the_same_code_is_hashed_with_another_salt() -> None:
    one, two = (recovery_codes.hash_codes("ana", ["abcde-fghij"])[0] for _ in range(2))
    assert one.code_hash != two.code_hash
    assert b"abcde" not in one.code_hash

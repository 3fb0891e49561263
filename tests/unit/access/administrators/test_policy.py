"""From where administrators may sign in, who needs a second factor, and what is counted."""

from ipaddress import ip_network

import pytest

from clarion.access.administrators.attempts import place_of, sign_in_counters
from clarion.access.administrators.model import (
    TrustedDevice,
    check_networks,
    check_username,
    is_within,
)
from clarion.access.administrators.policy import SignInPolicy
from clarion.access.model import Role, SignInStage, Visitor
from clarion.errors import AddressNotAllowed, InsecureTransport
from tests.factories import NOW, make_administrator

DEVICE = TrustedDevice(
    token_hash=b"device", administrator_id="ana", created_at=NOW, expires_at=NOW + 1
)


def test_plain_http_and_other_networks_are_refused() -> None:
    policy = SignInPolicy(networks=(ip_network("192.0.2.0/24"),))
    policy.check(Visitor(address="192.0.2.7"))
    with pytest.raises(AddressNotAllowed):
        policy.check(Visitor(address="192.0.3.7"))
    with pytest.raises(AddressNotAllowed):
        policy.check(Visitor(address=""))
    with pytest.raises(InsecureTransport):
        policy.check(Visitor(address="192.0.2.7", is_secure=False))
    SignInPolicy().check(Visitor(address="anything"))


@pytest.mark.parametrize(
    ("mfa", "needing"),
    [("admin", {"admin", "of an app"}), ("all", {"admin", "of an app", "viewer"}), ("off", set())],
)
def test_the_setting_says_who_needs_a_second_factor(mfa: str, needing: set[str]) -> None:
    accounts = [
        make_administrator("admin", role=Role.ADMIN),
        make_administrator("of an app", role=Role.VIEWER, app_roles={"shop": Role.ADMIN}),
        make_administrator("viewer", role=Role.VIEWER, app_roles={"shop": Role.EDITOR}),
    ]
    policy = SignInPolicy(mfa=mfa)
    assert {each.username for each in accounts if policy.needs_mfa(each)} == needing


def test_the_stage_says_what_is_missing() -> None:
    policy, admin = SignInPolicy(), make_administrator("ana", role=Role.ADMIN)
    viewer = make_administrator("bob", role=Role.VIEWER)
    stages = {
        (account.username, has_totp, has_mfa): policy.stage_of(
            account, has_totp=has_totp, has_mfa=has_mfa
        )
        for account in (admin, viewer)
        for has_totp, has_mfa in ((False, False), (True, False), (True, True))
    }
    assert stages == {
        ("ana", False, False): SignInStage.NEEDS_ENROLMENT,
        ("ana", True, False): SignInStage.NEEDS_TOTP,
        ("ana", True, True): SignInStage.SIGNED_IN,
        ("bob", False, False): SignInStage.SIGNED_IN,
        ("bob", True, False): SignInStage.NEEDS_TOTP,
        ("bob", True, True): SignInStage.SIGNED_IN,
    }


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("", ""),
    ],
)
def test_one_machine_is_one_place(address: str, place: str) -> None:
    assert place_of(address) == place


def test_an_attempt_is_counted_by_account_and_address() -> None:
    keys = [counter.key for counter in sign_in_counters("Ana", "192.0.2.7", None)]
    assert keys == [counter.key for counter in sign_in_counters("ana", "192.0.2.7", None)]
    elsewhere = [counter.key for counter in sign_in_counters("ana", "192.0.2.8", None)]
    assert set(keys) & set(elsewhere) == {keys[2]}
    other = [counter.key for counter in sign_in_counters("bob", "192.0.2.7", None)]
    assert set(keys) & set(other) == {keys[1]}
    assert not any("ana" in key for key in keys)


def test_a_trusted_device_is_counted_by_itself() -> None:
    (mine,) = sign_in_counters("ana", "192.0.2.7", DEVICE.token_hash)
    assert mine.key not in {each.key for each in sign_in_counters("ana", "192.0.2.7", None)}


@pytest.mark.parametrize("name", ["", "Ana", "a b", "-ana", "a" * 65, "ána", "a\n", "a/b"])
def test_a_username_is_plain(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case letters"):
        check_username(name)
    assert check_username("ana.k@example.com") == "ana.k@example.com"


def test_networks_are_checked_and_written_in_one_form() -> None:
    assert check_networks(["192.0.2.7", "fd00::/8"]) == ("192.0.2.7/32", "fd00::/8")
    for wrong in ("nonsense", "192.0.2.7/24", "192.0.2.0/33"):
        with pytest.raises(ValueError, match="must be networks"):
            check_networks([wrong])
    with pytest.raises(ValueError, match="at most 50"):
        check_networks(["192.0.2.7"] * 51)
    assert is_within("192.0.2.7", ("192.0.2.0/24",))
    assert not is_within("nonsense", ("0.0.0.0/0",))
    assert not is_within("::1", ("0.0.0.0/0",))

"""What administrators may do by their roles, and for which apps."""

import pytest

from clarion.access.model import (
    ALL_SCOPES,
    SCOPES_OF,
    AdminCaller,
    AppCaller,
    Caller,
    Role,
    Scope,
    SignInStage,
    UserCaller,
    require_admin,
    require_any_admin,
    require_app,
    require_user,
)
from clarion.errors import Forbidden, InvalidFields, MfaRequired, NotFound
from tests.replacing import replace

OPERATOR = AdminCaller(administrator_id="1", username="ops", role=Role.ADMIN)
# A viewer of everything, who edits one app; and one who has a single app.
MIXED = AdminCaller(
    administrator_id="2", username="mia", role=Role.VIEWER, app_roles={"shop": Role.EDITOR}
)
OF_SHOP = AdminCaller(administrator_id="3", username="sam", app_roles={"shop": Role.ADMIN})
OTHERS: list[Caller | None] = [
    AppCaller(app_id="shop", key_id="k", scopes=ALL_SCOPES),
    UserCaller(app_id="shop", user_id="u"),
    None,
]


def test_a_role_may_do_all_that_the_lower_ones_may() -> None:
    assert SCOPES_OF[Role.VIEWER] < SCOPES_OF[Role.EDITOR] < SCOPES_OF[Role.ADMIN] == ALL_SCOPES
    assert Role.ADMIN.covers(Role.EDITOR)
    assert Role.EDITOR.covers(Role.EDITOR)
    assert not Role.VIEWER.covers(Role.EDITOR)


def test_a_viewer_only_reads_and_an_editor_has_no_keys_and_providers() -> None:
    assert all(scope.value.endswith(":read") for scope in SCOPES_OF[Role.VIEWER])
    assert ALL_SCOPES - SCOPES_OF[Role.EDITOR] == {Scope.KEYS_WRITE, Scope.PROVIDERS_WRITE}


def test_the_higher_role_counts() -> None:
    assert MIXED.role_for("shop") is Role.EDITOR
    assert MIXED.role_for("blog") is Role.VIEWER
    assert OF_SHOP.role_for("shop") is Role.ADMIN
    assert OF_SHOP.role_for("blog") is None


def test_an_administrator_acts_for_the_app_that_is_named() -> None:
    acting = require_app(replace(MIXED, app_id="shop"), Scope.USERS_WRITE)
    assert acting == AppCaller(
        app_id="shop",
        key_id="administrator:2",
        scopes=SCOPES_OF[Role.EDITOR],
        administrator_id="2",
    )


def test_the_role_for_the_app_limits_what_may_be_done() -> None:
    require_app(replace(MIXED, app_id="blog"), Scope.USERS_READ)
    with pytest.raises(Forbidden, match="role viewer for this app does not include `users:write`"):
        require_app(replace(MIXED, app_id="blog"), Scope.USERS_WRITE)


def test_without_an_app_the_header_is_asked_for() -> None:
    with pytest.raises(InvalidFields) as caught:
        require_app(OPERATOR, Scope.USERS_READ)
    assert [fault.field for fault in caught.value.faults] == ["Clarion-App"]


def test_an_app_without_a_role_does_not_exist() -> None:
    with pytest.raises(NotFound):
        require_app(replace(OF_SHOP, app_id="blog"), Scope.USERS_READ)
    with pytest.raises(NotFound):
        require_admin(OF_SHOP, Role.VIEWER, "blog")


def test_a_role_for_one_app_is_none_for_all_apps() -> None:
    assert require_admin(OF_SHOP, Role.ADMIN, "shop") is OF_SHOP
    with pytest.raises(Forbidden, match="role viewer for all apps"):
        require_admin(OF_SHOP, Role.VIEWER)
    with pytest.raises(Forbidden, match="role admin for this app"):
        require_admin(MIXED, Role.ADMIN, "shop")


@pytest.mark.parametrize("stage", [SignInStage.NEEDS_TOTP, SignInStage.NEEDS_ENROLMENT])
def test_who_has_not_finished_signing_in_may_do_nothing(stage: SignInStage) -> None:
    half = replace(OPERATOR, stage=stage, app_id="shop")
    with pytest.raises(MfaRequired):
        require_app(half, Scope.USERS_READ)
    with pytest.raises(MfaRequired):
        require_admin(half, Role.VIEWER)
    with pytest.raises(MfaRequired):
        require_any_admin(half)


@pytest.mark.parametrize("caller", OTHERS)
def test_nobody_else_is_an_administrator(caller: Caller | None) -> None:
    with pytest.raises(Forbidden, match="Only administrators"):
        require_admin(caller, Role.VIEWER, "shop")


def test_an_administrator_is_no_user() -> None:
    with pytest.raises(Forbidden, match="Only users"):
        require_user(replace(OPERATOR, app_id="shop"))

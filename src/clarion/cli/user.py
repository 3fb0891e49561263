"""`clarion user`: users, their privacy, and user tokens for development."""

from __future__ import annotations

from cyclopts import App

# What the commands do, by the module in which they are.
_COMMANDS = {
    "user_records:create": "Create a user, or update the given fields of one that exists.",
    "user_records:import": "Create or update the users of a CSV or JSON lines file.",
    "user_privacy:export": "Print everything that is stored about a user.",
    "user_privacy:delete": "Delete a user, who can be restored for 30 days.",
    "user_privacy:restore": "Restore a deleted user.",
    "user_privacy:erase": "Erase everything about a user now; it cannot be undone.",
    "erasure_replay:replay": "After a restore: erase and delete again, by a newer audit log.",
    "user_token:token": "Sign a user token for development.",
}
# A module cannot have a function with the name of a keyword.
_FUNCTIONS = {"import": "import_users"}
_NAMES = {"replay": "replay-erasures"}

user = App(name="user")
for _place, _help in _COMMANDS.items():
    _module, _name = _place.split(":")
    _function = _FUNCTIONS.get(_name, _name)
    user.command(f"clarion.cli.{_module}:{_function}", name=_NAMES.get(_name, _name), help=_help)

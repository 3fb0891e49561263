"""A table is declared once, in the slice that owns it. What walks over tables reads declarations.

A declaration has an answer to each question that is asked of every table: whose its rows are, what
an export of a user shows of each column, which columns are sealed, how rows end, whether they are
copied to another engine or archived, and by which columns they could be divided. Erasure, export,
deletion of an app, retention, key rotation, copying and the reference page ask nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from clarion.store.records import Codec, Record

T = TypeVar("T")


class Owner(Enum):
    """Whose the rows are; the value is the condition that finds those of one owner."""

    INSTALLATION = ""
    APP = "app_id = :app_id"
    USER = "app_id = :app_id AND user_id = :user_id"
    ID = "app_id = :app_id AND id = :user_id"
    # The id begins with that of the user and a line break, which no user id has.
    PREFIX = "app_id = :app_id AND SUBSTR(id, 1, :length) = :prefix"
    DEVICE = "app_id = :app_id AND device_id = :device_id"
    DEVICE_OF_USER = "app_id = :app_id AND device_id = :device_id AND user_id = :user_id"
    # The messages of a device while it was the user's.
    DEVICE_MESSAGES = (
        "app_id = :app_id AND device_id = :device_id AND sequence > :since AND sequence <= :until"
    )
    TOKEN = "app_id = :app_id AND token_hash = :token_hash"  # noqa: S105 - a condition
    NOTIFICATION = "notification_id = :notification_id"
    # Each row may name many users: the slice finds, changes and shows them itself.
    SEVERAL_USERS = "app_id = :app_id /* and it names the user */"

    @property
    def is_user(self) -> bool:
        """Whether the rows are about users."""
        return self not in (Owner.INSTALLATION, Owner.APP)


# Rows that are found by a device that is or was the user's.
OF_DEVICES = frozenset({Owner.DEVICE, Owner.DEVICE_OF_USER, Owner.DEVICE_MESSAGES, Owner.TOKEN})


class Shape(Enum):
    """How an export shows the values of a column."""

    PLAIN = auto()
    TIME = auto()  # milliseconds, shown as RFC 3339
    FLAG = auto()  # 0 or 1
    JSON = auto()
    PAYLOAD = auto()  # bytes that are JSON, or else are shown in base64


class Omitted(NamedTuple):
    """Why an export leaves a column out."""

    why: str


class Sealed(NamedTuple):
    """A column whose values are encrypted, each for its row, so an export leaves it out.

    `context` takes the values of `fields`, which are those of the key if none are given.
    """

    context: Callable[..., str]
    fields: tuple[str, ...] = ()


Column = Shape | Omitted | Sealed
PLAIN, TIME, FLAG, JSON, PAYLOAD = Shape
HASH = Omitted("a hash: it says nothing to the user")
APP_ID = Omitted("the export is that of one app")
USER_ID = Omitted("the export is that of one user")
TRACE = Omitted("the id of a trace: it says nothing to the user")
OF_USER: Mapping[str, Column] = {"app_id": APP_ID, "user_id": USER_ID}


def plain(names: str) -> dict[str, Column]:
    """Return columns that an export shows as they are, by their names with spaces between."""
    return dict.fromkeys(names.split(), PLAIN)


def times(names: str) -> dict[str, Column]:
    """Return columns with times."""
    return dict.fromkeys(names.split(), TIME)


def json(names: str) -> dict[str, Column]:
    """Return columns with JSON."""
    return dict.fromkeys(names.split(), JSON)


class Expires(NamedTuple):
    """Rows are deleted when the time in a column has passed; an index finds them."""

    found_by: str
    column: str = "expires_at"


class Ages(NamedTuple):
    """Rows are deleted when the time in a column is old: older than the longest of some settings.

    `kept` are names of settings in days, or milliseconds. `where` is a condition of the index.
    """

    found_by: str
    column: str
    kept: tuple[str, ...] | int
    where: str = ""


class Pruned(NamedTuple):
    """A step of the owning slice deletes old rows; `found_by` is the index that finds them."""

    found_by: str
    kept: tuple[str, ...] = ()


class GoesWith(NamedTuple):
    """Rows are deleted together with those of another table."""

    table: str


class Stays(NamedTuple):
    """Rows do not age: why, or what deletes them."""

    why: str


Ends = Expires | Ages | Pruned | GoesWith | Stays


class Table(Record[T], Generic[T]):
    """How objects are rows of a table, and everything that is asked about the table.

    Rows that are no objects have the type `tuple`: statements name their columns.

    `columns` has every column of a table about users; of another one, `impersonal` says why it has
    no data about users, and `columns` has those with bytes. An export shows rows as `section`, or
    not at all if that is empty. `by_app` are the columns of the index that finds the rows of an
    app, and `where` the condition on those before the app. `shard` are the columns by which the
    table could be divided.
    """

    def __init__(  # noqa: PLR0913 - each is a question that is asked of every table
        self,
        name: str,
        row_type: type[T],
        *,
        key: tuple[str, ...],
        owner: Owner,
        ends: Ends,
        shard: tuple[str, ...] = (),
        columns: Mapping[str, Column] = MappingProxyType({}),
        impersonal: str = "",
        section: str = "",
        by_app: tuple[str, ...] = (),
        where: str = "",
        kept_of_app: str = "",
        not_copied: str = "",
        archived: bool = False,
        note: str = "",
        inline: Collection[str] = (),
        without: Collection[str] = (),
        codecs: Mapping[str, Codec] = MappingProxyType({}),
    ) -> None:
        if owner.is_user == bool(impersonal):
            raise TypeError(f"{name}: is it about users, or why not?")
        if owner.is_user and not columns:
            raise TypeError(f"{name}: which columns does an export show?")
        if owner is not Owner.INSTALLATION and not shard:
            raise TypeError(f"{name}: by which columns could it be divided?")
        if row_type is not tuple:
            super().__init__(row_type, inline=inline, without=without, codecs=codecs)
        self.name = name
        self.key = key
        self.owner = owner
        self.ends = ends
        self.shard = shard
        self.answers = columns
        self.impersonal = impersonal
        self.section = section
        self.by_app = by_app or ("app_id", *(each for each in key if each != "app_id"))
        self.where = where
        self.kept_of_app = kept_of_app
        self.not_copied = not_copied
        self.archived = archived
        self.note = note or ("" if shard else "of the installation")

    @property
    def insert(self) -> str:
        """The statement that adds a row of all columns of the row type."""
        return f"INSERT INTO {self.name} ({self.columns}) VALUES ({self.parameters})"  # noqa: S608

    @property
    def shown(self) -> dict[str, Shape]:
        """The columns that an export shows."""
        return {name: each for name, each in self.answers.items() if isinstance(each, Shape)}

    @property
    def sealed(self) -> dict[str, Sealed]:
        return {name: each for name, each in self.answers.items() if isinstance(each, Sealed)}

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key, led by the app if rows have one."""
        has_app = self.owner not in (Owner.INSTALLATION, Owner.NOTIFICATION)
        return tuple(dict.fromkeys(("app_id", *self.key))) if has_app else self.key

    @property
    def cursor(self) -> tuple[str, ...]:
        """The columns of the key that differ among the rows of one owner."""
        of_owner = self.owner.value
        return tuple(each for each in self.key if not re.search(rf"\b{each} = :", of_owner))

    def __repr__(self) -> str:
        return f"Table({self.name})"

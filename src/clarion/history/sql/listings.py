"""Statements that list an inbox, newest first: all of it or what is unread, also of a category."""

from __future__ import annotations

from clarion.store.statement import Statement, statement

OF_USER = "app_id = :app_id AND user_id = :user_id"
IS_LISTED = f"{OF_USER} AND is_shown = 1 AND dismissed_at IS NULL"
IS_UNREAD = f"{IS_LISTED} AND read_at IS NULL"
IS_READ = f"{IS_LISTED} AND read_at IS NOT NULL"
_OF_PAGE = "AND id < :before_id ORDER BY id DESC LIMIT :limit"
# There the read and the unread ones have an index each. The first half of the condition is that of
# the index.
_OF_CATEGORY = f"AND category > '' AND category = :category {_OF_PAGE}"

# By whether only the unread ones are listed, and only those of a category.
Listings = dict[tuple[bool, bool], Statement]


def make_listings(verb: str, columns: str, more: str = "") -> Listings:
    """Return the statements that select these columns; `more` are expressions of the whole page."""
    return {
        (False, False): statement(
            f"{verb}_inbox",
            f"SELECT {columns}{more} FROM notifications WHERE {IS_LISTED} {_OF_PAGE}",
        ),
        (True, False): statement(
            f"{verb}_unread",
            f"SELECT {columns}{more} FROM notifications WHERE {IS_UNREAD} {_OF_PAGE}",
        ),
        (True, True): statement(
            f"{verb}_unread_of_category",
            f"SELECT {columns}{more} FROM notifications WHERE {IS_UNREAD} {_OF_CATEGORY}",
        ),
        (False, True): statement(
            f"{verb}_inbox_of_category",
            f"""SELECT {columns}{more} FROM (
              SELECT * FROM (SELECT {columns} FROM notifications WHERE {IS_UNREAD} {_OF_CATEGORY})
                AS unread
              UNION ALL
              SELECT * FROM (SELECT {columns} FROM notifications WHERE {IS_READ} {_OF_CATEGORY})
                AS already_read
            ) AS listed ORDER BY id DESC LIMIT :limit""",
        ),
    }

"""The table of idempotency keys and the responses stored with them."""

from __future__ import annotations

from clarion.idempotency.model import IdempotencyClaim, answer_context
from clarion.store.table import APP_ID, HASH, PLAIN, TIME, USER_ID, Expires, Owner, Sealed, Table

IDEMPOTENCY_KEYS = Table(
    "idempotency_keys",
    IdempotencyClaim,
    key=("app_id", "key"),
    owner=Owner.USER,
    section="idempotency_keys",
    columns={
        "app_id": APP_ID,
        "user_id": USER_ID,
        "key": PLAIN,
        "fingerprint": HASH,
        # May hold a secret, such as that of a device.
        "answer": Sealed(answer_context),
        "created_at": TIME,
        "expires_at": TIME,
    },
    ends=Expires("idempotency_keys_by_expiry"),
    shard=("app_id", "key"),
)
TABLES = (IDEMPOTENCY_KEYS,)

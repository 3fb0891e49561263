"""What other slices use for work that is not committed in one unit with its response."""

from clarion.idempotency.sql import IdempotencyKeys as IdempotencyKeys

"""`Idempotency-Key`: a request that is repeated gets its first response."""

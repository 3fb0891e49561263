"""Idempotency keys: a repeated request gets the first response and takes no effect again."""

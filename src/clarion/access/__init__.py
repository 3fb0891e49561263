"""Credentials → Caller. Keys, tokens, passwords and the vault for secrets that are read again."""

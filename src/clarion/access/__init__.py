"""Apps, API keys, user tokens, administrators, and the vault for their secrets."""

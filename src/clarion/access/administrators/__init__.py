"""Administrators: accounts, sign-in, sessions, second factors and admin API keys."""

"""Administrators, sessions, second factors, keys and failed sign-ins in SQL."""

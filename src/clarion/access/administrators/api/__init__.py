"""Administrators over HTTP."""

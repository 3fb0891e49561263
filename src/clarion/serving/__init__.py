"""Addresses → listeners. Plain, TLS and gateway, in one process and one event loop."""

"""Devices, topics, history and statistics over HTTP."""

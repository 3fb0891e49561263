"""Devices, messages and topics in SQL."""

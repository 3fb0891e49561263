"""The push gateway: devices, their connections, messages and topics."""

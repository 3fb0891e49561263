"""Reads the metrics of a server."""

import http.client

from bench.deployment import HOST


def read_metrics(port: int) -> str:
    """Return what `GET /metrics` answers."""
    connection = http.client.HTTPConnection(HOST, port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()

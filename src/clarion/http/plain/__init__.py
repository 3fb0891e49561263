"""The listener without TLS: HTTP/1.1 on the event loop itself. HTTP/2 is passed on to Granian."""

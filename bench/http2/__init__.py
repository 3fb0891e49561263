"""HTTP/2 frames by hand, so that the generator stays ahead of the server."""

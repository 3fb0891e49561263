"""Requests → answers over HTTP. One file a noun; the routes are on one page."""

"""Clarion as a Web Push service: devices have endpoint URLs to which anyone who knows one sends."""

"""The name of a browser and its system, from its `User-Agent`: Firefox on Windows."""

from __future__ import annotations

# The first that is found counts: most browsers also name those that they imitate.
_BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("SamsungBrowser/", "Samsung Internet"),
    ("Vivaldi/", "Vivaldi"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("CriOS/", "Chrome"),
    ("HeadlessChrome/", "Chrome"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python", "Python"),
)
_SYSTEMS = (
    ("iPhone", "iPhone"),
    ("iPad", "iPad"),
    ("Android", "Android"),
    ("CrOS", "ChromeOS"),
    ("Windows", "Windows"),
    ("Mac OS X", "macOS"),
    ("Linux", "Linux"),
)


def describe_browser(user_agent: str | None) -> str:
    """Return the browser and the system; if both are unknown, the start of the header."""
    text = user_agent or ""
    browser = next((name for part, name in _BROWSERS if part in text), "")
    system = next((name for part, name in _SYSTEMS if part in text), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or text[:40] or "Unknown browser"

"""The rules: an event and a user → a verdict for each channel, with its reason. Pure code."""

"""People, and the types and words of what they hear."""

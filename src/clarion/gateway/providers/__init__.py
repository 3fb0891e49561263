"""A provider's request → a push that is checked, or the reason why not."""

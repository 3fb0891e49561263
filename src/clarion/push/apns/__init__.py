"""The APNs endpoint: a provider's request → a push, or Apple's reason for refusing it."""

"""Events: accepted, queued, decided, delivered, explained."""

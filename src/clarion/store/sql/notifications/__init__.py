"""Events, the work that waits, what people were told, and how it went."""

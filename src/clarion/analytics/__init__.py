"""How much happened in each minute, hour and day."""

"""What nodes share and may lose, in process memory or in Redis: the bus, presence, rate limits."""

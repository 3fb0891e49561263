"""State that nodes share and may lose, in process memory or in Redis: rate limits."""

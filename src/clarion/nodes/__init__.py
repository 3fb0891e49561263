"""What nodes share and may lose: limits; in process or in Redis."""

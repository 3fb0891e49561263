"""What may be lost: counters, presence, caches. In memory, or in Redis for several nodes."""

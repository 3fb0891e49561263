"""What a verdict comes to: words, deliveries, work, and the entry that is written."""

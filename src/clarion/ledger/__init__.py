"""What was written about a notification → its state in one word, and its story in order."""

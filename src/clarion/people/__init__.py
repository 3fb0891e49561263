"""Users, their preferences and the topics they follow."""

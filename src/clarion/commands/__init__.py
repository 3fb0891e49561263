"""What an operator types → what the house does. One file a command that needs more than a line."""

"""What has to be known before the rules are asked, for a whole batch at once."""

"""A message → delivered, retry, rejected or gone. One file a channel; the inbox needs none."""

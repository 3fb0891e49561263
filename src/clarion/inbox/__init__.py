"""The inboxes of users: pages, counts, actions, and the same on all open clients at once."""

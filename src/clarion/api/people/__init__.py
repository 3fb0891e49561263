"""People, what they want and follow, and the types and words of what they hear, over HTTP."""

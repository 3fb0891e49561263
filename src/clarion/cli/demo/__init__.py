"""`clarion demo`: an app in which something happens all the time."""

"""`clarion device listen`."""

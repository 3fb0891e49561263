"""`clarion device listen`: registers, connects, shows what arrives."""

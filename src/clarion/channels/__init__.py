"""The providers of channels, one file each. The inbox needs none."""

"""`clarion device listen`: test devices that connect to the gateway."""

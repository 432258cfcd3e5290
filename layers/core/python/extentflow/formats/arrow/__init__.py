"""Arrow IPC files and streams."""

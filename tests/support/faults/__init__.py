"""Faults at the border between a device and its kernel: a preloaded shim, what a power cut forgets, lives to break."""

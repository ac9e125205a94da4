"""Injected faults between a device and the kernel: a preloaded library, a model of power cuts, scenarios to break."""

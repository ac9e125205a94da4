"""Hadamard response, in a package of its own."""

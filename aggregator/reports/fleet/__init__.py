"""Closed fleets: only listed devices may answer. ``roster`` holds their secrets, ``ids`` computes their report ids."""

"""Nodes: gateways that hold records of many people and send noisy sums of them."""

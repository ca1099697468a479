"""Simulated devices and their network."""

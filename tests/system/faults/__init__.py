"""Faults on the real thing: one deployment on engines of its own, which all tests of this package share."""

"""The deterministic simulator: the unchanged planes on a virtual clock, with faults and checkers."""

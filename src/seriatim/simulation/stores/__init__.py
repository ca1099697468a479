"""The strict in-memory stores: for the simulator and the tests, with the rules of the real ones."""

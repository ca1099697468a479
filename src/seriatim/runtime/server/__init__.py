"""The process: start, readiness, drain, exit."""

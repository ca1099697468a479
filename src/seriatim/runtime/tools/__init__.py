"""What the operator's commands are wired to."""

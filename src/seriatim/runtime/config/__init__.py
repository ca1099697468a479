"""Settings: what they are, where they come from, which roles a process has."""

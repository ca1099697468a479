"""Settings, the only place where parts are wired together, and observation."""

"""The REST edge: translates HTTP into calls and back, and decides nothing."""

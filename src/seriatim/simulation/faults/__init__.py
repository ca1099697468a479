"""What goes wrong in a schedule."""

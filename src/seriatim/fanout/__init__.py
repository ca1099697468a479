"""The fanout plane: takes published events to the connections of their recipients, best effort."""

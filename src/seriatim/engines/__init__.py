"""How a need is met: one folder per engine, each file named after the port it implements."""

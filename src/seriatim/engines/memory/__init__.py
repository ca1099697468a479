"""The engine that keeps everything in this process's memory: for tests and the simulator."""

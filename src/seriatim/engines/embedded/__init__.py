"""The engine that keeps everything in one folder of this machine: durable before it answers, nothing to install."""

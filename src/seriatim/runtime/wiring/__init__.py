"""The only place that names engines: which engines a process has, and which part is handed which port."""

"""Files and streams: sources, atomic outputs, locks, memory limits."""

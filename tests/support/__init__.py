"""What tests share: oracles, processes, commands, data."""

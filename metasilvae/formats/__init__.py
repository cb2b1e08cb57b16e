"""Readers and writers of data, model, table and log files."""

"""Files that metasilvae reads and writes, one module per format."""

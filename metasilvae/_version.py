"""The version, in a module of its own so that the build and ``--version`` read it without importing anything."""

VERSION = "0.1.0"

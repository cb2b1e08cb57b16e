"""``python -m metasilvae`` is the same as the ``metasilvae`` command."""

from metasilvae.cli import main

if __name__ == "__main__":
    main(prog_name="metasilvae")

#!/usr/bin/env python3
"""Shows what `make coverage` has recorded: the files with lines that were not run, then the shares of both languages.

scripts/line_coverage/report.py
"""

from __future__ import annotations

import io

from coverage import Coverage

LANGUAGES = {"Python": "metasilvae/*", "Cython": "cython_ext/*"}


def main() -> None:
    recorded = Coverage()
    recorded.load()
    shares = {}
    for language, pattern in LANGUAGES.items():
        text = io.StringIO()
        share = recorded.report(file=text, include=[pattern], skip_covered=True, show_missing=True)
        print(text.getvalue())
        [total] = [line.split() for line in text.getvalue().splitlines() if line.startswith("TOTAL")]
        shares[language] = f"{share:.1f} % of {total[1]} lines"
    for language, share in shares.items():
        print(f"{language}  {share}")


if __name__ == "__main__":
    main()

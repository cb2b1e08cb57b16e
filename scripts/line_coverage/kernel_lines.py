"""Plugin of coverage for the lines of the kernels and of their headers.

Cython's plugin looks for the C file beside the source, by a path from the folder where the program runs. Here C files
are in the build folder, tests run in folders of their own, and the functions of a header are spread over the C files of
all kernels that use them. So this one reads all C files and joins what they say about a source.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from Cython.Coverage import CythonModuleTracer, Plugin

ROOT = Path(__file__).resolve().parents[2]
C_FILES = ROOT / "build" / "coverage" / "cython"
SOURCES = [path for path in sorted((ROOT / "cython_ext").rglob("*")) if path.suffix in (".pyx", ".pxd")]
# The head of a C function: code is made for it, but no line is told.
HEAD = re.compile(r"\s*cdef\s[^=(]*\(")


def find_source(name: str) -> str | None:
    """The source that a C file, or a compiled function, names by the end of its path."""
    parts = Path(name).parts
    return next((str(path) for path in SOURCES if path.parts[-len(parts) :] == parts), None)


class KernelLines(Plugin):
    """Knows sources by their path in the repository, wherever the program runs."""

    def _read_all(self) -> None:
        if self._c_files_map is not None:
            return
        self._c_files_map, self._file_path_map = {}, {}
        for c_file in sorted(C_FILES.rglob("*.c")):
            for name, lines in self._parse_cfile_lines(str(c_file)).items():
                if source := find_source(name):
                    relative = Path(source).relative_to(ROOT).as_posix()
                    _, _, known = self._c_files_map.setdefault(source, (str(c_file), relative, {}))
                    known.update((line, text) for line, text in lines.items() if not HEAD.match(text))

    def file_tracer(self, filename: str) -> CythonModuleTracer | None:
        if not filename.endswith((".pyx", ".pxd")):
            return None
        self._read_all()
        source = find_source(filename)
        if source not in self._c_files_map:
            return None
        self._file_path_map[filename] = source
        return CythonModuleTracer(source, None, self._c_files_map[source][0], self._c_files_map, self._file_path_map)

    def file_reporter(self, filename: str) -> Any:
        self._read_all()
        return super().file_reporter(filename)

    def find_executable_files(self, src_dir: str) -> list[str]:
        """Sources, of which those count too that nothing has run."""
        self._read_all()
        return [source for source in self._c_files_map if source.startswith(src_dir)]


def coverage_init(registry: Any, options: dict[str, Any]) -> None:
    plugin = KernelLines()
    registry.add_configurer(plugin)
    registry.add_file_tracer(plugin)

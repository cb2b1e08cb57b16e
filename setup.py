"""Build of the compiled kernels; everything declarative is in pyproject.toml.

``METASILVAE_DEBUG=1`` builds the kernels with bounds checks, without optimization, ``METASILVAE_SANITIZE=1`` with
AddressSanitizer and UndefinedBehaviorSanitizer, ``METASILVAE_COVERAGE=1`` so that they tell each line they run; each in
a build folder of its own, so that a checked and an optimized build never share a file.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup


def is_set(name: str) -> bool:
    return os.environ.get(name, "") not in ("", "0")


DEBUG, SANITIZE = is_set("METASILVAE_DEBUG"), is_set("METASILVAE_SANITIZE")
COVERAGE = is_set("METASILVAE_COVERAGE")
BUILD_FOLDER = "build/sanitize" if SANITIZE else "build/debug" if DEBUG else "build/coverage" if COVERAGE else "build"
SOURCES = Path("cython_ext")
KERNELS = sorted(SOURCES.rglob("*.pyx"))
# Memoryviews, Cython's function type and other helpers are compiled once, into this module, not into every kernel.
SHARED_HELPERS = "metasilvae._core._shared"
# -ffp-contract=off: a fused multiply-add would make float64 results differ between machines.
# -g0: a third of the time to compile would go into symbols that nobody looks at.
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]
OPTIMIZATION = ["-O1", "-g1", *SANITIZERS] if SANITIZE else ["-O0", "-g"] if DEBUG else ["-O3", "-g0"]
COMPILER_FLAGS = [] if os.name == "nt" else ["-ffp-contract=off", *(["-O1", "-g0"] if COVERAGE else OPTIMIZATION)]
# Without the GIL too, and by the interface that the tracer of coverage follows.
TRACING = [("CYTHON_TRACE_NOGIL", "1"), ("CYTHON_USE_SYS_MONITORING", "0")] if COVERAGE else []


def name_of(path: Path) -> str:
    """PACKAGE/NAME.pyx in cython_ext is compiled to metasilvae._core.PACKAGE.NAME."""
    return ".".join(["metasilvae", "_core", *path.relative_to(SOURCES).with_suffix("").parts])


extensions = [
    Extension(
        name,
        sources,
        define_macros=TRACING,
        extra_compile_args=COMPILER_FLAGS,
        extra_link_args=SANITIZERS if SANITIZE else [],
    )
    for name, sources in [
        (SHARED_HELPERS, ["_shared.c"]),
        *((name_of(path), [path.as_posix()]) for path in KERNELS),
    ]
]

setup(
    packages=[*find_packages(include=["metasilvae*"]), "metasilvae._datasets"],
    package_dir={"metasilvae._datasets": "datasets"},
    package_data={
        "metasilvae": ["py.typed", "_core/*/*.pyi"],
        "metasilvae.output.html": ["*.css", "*.js"],
        "metasilvae._datasets": ["README.md", "*.tsv", "*/*.csv.gz", "*/*.silva"],
    },
    ext_modules=cythonize(
        extensions,
        include_path=[SOURCES.as_posix()],
        shared_utility_qualified_name=SHARED_HELPERS,
        build_dir=f"{BUILD_FOLDER}/cython",
        force=DEBUG,
        # Worker processes start fast only where they are forked.
        nthreads=(os.cpu_count() or 1) if sys.platform == "linux" else 0,
        compiler_directives={
            "language_level": 3,
            "boundscheck": DEBUG,
            "wraparound": False,
            "initializedcheck": DEBUG,
            "cdivision": not DEBUG,
            "linetrace": COVERAGE,
        },
    ),
    options={"build": {"build_base": BUILD_FOLDER}, "build_ext": {"parallel": os.cpu_count() or 1}},
)

from typing import Any

# Kernels are compiled; their callers state the types.
def __getattr__(name: str) -> Any: ...

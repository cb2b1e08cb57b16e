"""The build is the one that was asked for."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
from pathlib import Path

import numpy as np
import pytest
from support.oracles import make_model

from metasilvae import _core
from metasilvae._core.model import predict
from metasilvae._core.verification import reach

EXPECTS_DEBUG = os.environ.get("METASILVAE_EXPECT_DEBUG", "") not in ("", "0")


@pytest.mark.skipif(not EXPECTS_DEBUG, reason="an optimized build would write behind the array")
def test_a_debug_build_checks_bounds() -> None:
    tree = make_model([(0, 0.5, [1, 0], [0, 1])], 1)
    X = np.zeros((3, 1))
    with pytest.raises(IndexError):
        predict.fill_leaves(tree.nodes, tree.roots, X, False, 0, 3, np.empty((2, 1), dtype=np.int32))
    with pytest.raises(IndexError):
        predict.fill_leaves(tree.nodes, tree.roots, X[:2], False, 0, 3, np.empty((3, 1), dtype=np.int32))
    bounds = [X, X, *[np.zeros(1)] * 2, np.full(1, -np.inf), np.full(1, np.inf)]
    expected = np.zeros(3, dtype=np.int32)
    with pytest.raises(IndexError):
        reach.check_stability(
            tree.nodes, tree.leaf_predictions.ids, 1, *bounds, False, expected, 0, 3, np.empty(2, dtype=np.uint8)
        )


def test_kernels_refuse_arrays_of_another_type() -> None:
    tree = make_model([[1, 0]], 1)
    with pytest.raises(ValueError, match="Buffer dtype mismatch"):
        predict.fill_leaves(
            tree.nodes, tree.roots, np.zeros((1, 1), np.float32), False, 0, 1, np.empty((1, 1), dtype=np.int32)
        )


KERNELS = sorted(path for path in Path(_core.__file__).parent.rglob("*.pyi"))


@pytest.mark.parametrize("stub", KERNELS, ids=lambda path: path.stem)
def test_stubs_name_what_kernels_have(stub: Path) -> None:
    kernel = importlib.import_module(f"metasilvae._core.{stub.parent.name}.{stub.stem}")
    body = ast.parse(stub.read_text()).body
    declared = {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    constants = {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    assert constants | set(declared) <= set(vars(kernel))
    for name, node in declared.items():
        if isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)} - {"__init__"}
            assert methods == {each for each in vars(getattr(kernel, name)) if each[0] != "_"} & methods
    functions = {name for name, value in vars(kernel).items() if name[0] != "_" and inspect.isroutine(value)}
    own = {name for name in functions if getattr(vars(kernel)[name], "__module__", None) == kernel.__name__}
    assert own <= set(declared), "a function of the kernel is missing in its stub"


def test_every_kernel_has_a_stub() -> None:
    folder = Path(_core.__file__).parent
    compiled = {path.name.split(".")[0] for path in folder.glob("*/*") if path.suffix in (".so", ".pyd")}
    assert compiled == {path.stem for path in KERNELS}

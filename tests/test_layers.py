"""Imports point down only: kernels, data, algorithms, edge."""

import ast
from pathlib import Path

import pytest

import metasilvae

PACKAGE = Path(metasilvae.__file__).parent
LAYERS = [
    {"_version", "_core"},
    {"errors", "extras", "memory"},
    {"cache", "storage", "dataset", "model", "formats", "domains", "perturbation", "attack", "outcome",
     "file_locks", "fingerprints", "staging"},
    {
        "voting", "parallel", "prediction", "matching", "verification", "forest_verification", "evaluation", "gates",
        "forest_comparison", "similarity", "model_summary", "scaling", "splitting", "data_summary", "builtin_datasets",
        "finalists", "first_generation", "fitness", "individuals", "rehearsal", "seed_study", "training",
        "training_options", "execution", "parcel", "sharding", "row_pieces", "merging",
        "ensemble_votes", "forest_growth", "forest_options", "forest_rehearsal", "forest_training",
        "radius", "forest_radius", "curve", "comparison", "simplification", "explanation", "hitting_set",
        "checkpoint", "manifest", "run_description", "search_setup", "search_state", "stored_trees",
        "told_steps", "training_progress",
        "tree_tasks", "trainers", "imports", "export", "thresholds", "transfer", "remote_datasets", "attack_templates",
        "pareto", "pareto_folder", "assessment",
    },
    {"api"},
    {"estimators", "robust_classifier", "scorers"},
    {"report"},
    {"page"},
    {"plots"},
    {"cli", "__main__", "__init__"},
]  # fmt: skip
EDGE_ONLY = {"click", "tqdm"}
MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(name: str) -> int:
    found = [number for number, names in enumerate(LAYERS) if name in names]
    assert found, f"{name} has no layer: add it to LAYERS in {Path(__file__).name}"
    return found[0]


def imported_names(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path: Path) -> None:
    own = layer_of(path.relative_to(PACKAGE).parts[0].removesuffix(".py"))
    for name in imported_names(path):
        package, _, rest = name.partition(".")
        if package == "metasilvae" and rest:
            target = rest.split(".")[0]
            if (PACKAGE / target).exists() or (PACKAGE / f"{target}.py").exists():
                assert layer_of(target) <= own, f"{path.name} imports {name} from a higher layer"
        if package in EDGE_ONLY:
            assert own >= layer_of("report"), f"{path.name} imports {package}, which belongs to the edge"

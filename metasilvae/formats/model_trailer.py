"""The trailer of a model file: one line behind the last node in which the model describes itself.

::

    # metasilvae {"features": ["alcohol", "hue"], "label": "class", "voting": "max", "trained": {...}}

The directions of missing values are a text under ``missing``, one letter for each split in the order of the file: L
(left), R (right) or N (none); a number before a letter repeats it, so that ``3LR`` means LLLR.

silva and its tools ignore text behind the last node, so that a file with a trailer is the same model to them. The line
is read strictly: what is malformed or contradicts the model is refused. Unknown keys are ignored, so that files of
newer versions can be read; what a reader must not ignore is listed under ``requires``.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from metasilvae.errors import ModelError, shorten
from metasilvae.io.memory import allowed_memory, describe_allowed
from metasilvae.model import MISSING_LEFT, MISSING_RIGHT, NO_DIRECTION, Model, ModelDescription
from metasilvae.voting import VOTINGS

MARK = "# metasilvae "
REQUIRES = "requires"
MISSING = "missing"
# What this version understands among the entries of `requires`.
UNDERSTOOD: frozenset[str] = frozenset({MISSING})
_LETTERS = {"L": MISSING_LEFT, "R": MISSING_RIGHT, "N": NO_DIRECTION}
_RUN = re.compile(r"([1-9][0-9]{0,9})?([LRN])")
# Words that programs search for in model files; inside the trailer they are written with an escape.
_ESCAPED_WORDS = {word: f"\\u{ord(word[0]):04x}{word[1:]}" for word in ("SPLIT", "LEAF", "classifier-")}
# Bytes of memory that JSON may take for each byte of text: small lists and strings are the worst case.
_MEMORY_PER_BYTE = 32
_KINDS: dict[str, tuple[type, str]] = {
    "features": (list, "a list of names"),
    "label": (str, "a name"),
    "voting": (str, "the name of a voting scheme"),
    "encoding": (dict, "an object"),
    "trained": (dict, "an object"),
    MISSING: (str, "the directions of missing values"),
    REQUIRES: (list, "a list of names"),
}


def format_trailer(model: Model) -> str:
    """The trailer of a model without line end; empty if it has neither a description nor directions."""
    description = model.description
    content: dict[str, Any] = {
        "features": None if description.feature_names is None else list(description.feature_names),
        "label": description.label_name,
        "voting": description.voting,
        "encoding": description.encoding,
        "trained": description.provenance,
        MISSING: _format_directions(model) if model.has_directions else None,
        REQUIRES: [MISSING] if model.has_directions else None,
    }
    content = {key: value for key, value in content.items() if value is not None}
    if not content:
        return ""
    try:
        text = json.dumps(content, allow_nan=False)
        problem = _find_problem(json.loads(text), model)
        _check_memory(len(text), f"{model.source}: its description")
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"is not plain JSON: {error}"
    if problem is not None:
        raise ModelError(f"{model.source}: its description {problem}; the model cannot be written, except without it")
    for word, escaped in _ESCAPED_WORDS.items():
        text = text.replace(word, escaped)
    return MARK + text


def parse_trailer(text: bytes, model: Model, place: str) -> ModelDescription:
    """Read what follows the mark of a trailer; errors begin with `place`, the name and line of the file."""
    _check_memory(len(text), f"{place}: the trailer")
    try:
        content = json.loads(
            text.decode("utf-8"),
            object_pairs_hook=_refuse_twins,
            parse_float=_parse_finite,
            parse_constant=_refuse_constant,
        )
        problem = _find_problem(content, model)
    except (ValueError, RecursionError) as error:
        cause = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ModelError(
            f"{place}: the trailer is not JSON ({cause}); was the file cut short or edited? "
            "Without this line the model is read by position"
        ) from None
    if problem is not None:
        raise ModelError(f"{place}: the trailer {problem}")
    names = content.get("features")
    return ModelDescription(
        None if names is None else tuple(names),
        content.get("label"),
        content.get("voting"),
        content.get("encoding"),
        content.get("trained"),
    )


def read_directions(text: bytes, model: Model) -> Model:
    """The model with the directions of missing values that its trailer, which was read before, contains."""
    directions = json.loads(text.decode("utf-8")).get(MISSING)
    if directions is None:
        return model
    nodes = model.nodes.copy()
    nodes["leaf"][nodes["feature"] >= 0] = _parse_directions(directions)
    return replace(model, nodes=nodes)


def _format_directions(model: Model) -> str:
    letters = {direction: letter for letter, direction in _LETTERS.items()}
    directions = model.nodes["leaf"][model.nodes["feature"] >= 0].tolist()
    runs = ((letters[direction], sum(1 for _ in run)) for direction, run in itertools.groupby(directions))
    return "".join(letter if length == 1 else f"{length}{letter}" for letter, length in runs)


def _parse_directions(text: str) -> NDArray[np.int32]:
    runs = _RUN.findall(text)
    return np.repeat([_LETTERS[letter] for _, letter in runs], [int(length or 1) for length, _ in runs])


def _directions_problem(text: str, model: Model) -> str | None:
    if not re.fullmatch(rf"(?:{_RUN.pattern})*", text):
        return f"has {shorten(text)} under {MISSING!r}, expected letters L, R and N with numbers, such as 12L3R"
    n_found = sum(int(length or 1) for length, _ in _RUN.findall(text))
    n_splits = int((model.nodes["feature"] >= 0).sum())
    if n_found != n_splits:
        return f"has {n_found} directions of missing values, the model has {n_splits} splits"
    return None


def names_problem(names: Sequence[Any], n_features: int) -> str | None:
    """Why names cannot be those of the features of a model, or None if they can."""
    if len(names) != n_features:
        return f"has {len(names)} feature names, the model has {n_features} features"
    places: dict[str, int] = {}
    for feature, name in enumerate(names):
        if not isinstance(name, str):
            return f"has {shorten(repr(name))} as the name of feature {feature}, expected text"
        if name in places:
            return f"has the name {shorten(name)} for features {places[name]} and {feature}; names must differ"
        if not _is_unicode(name):
            return f"has {shorten(name)} as the name of feature {feature}, which is not Unicode text"
        places[name] = feature
    return None


def _find_problem(content: Any, model: Model) -> str | None:
    if not isinstance(content, dict):
        return f"holds {shorten(json.dumps(content))}, expected a JSON object"
    for key, (kind, expected) in _KINDS.items():
        if key in content and not isinstance(content[key], kind):
            return f"has {shorten(json.dumps(content[key]))} under {key!r}, expected {expected}"
    for entry in content.get(REQUIRES, ()):
        if not isinstance(entry, str) or entry not in UNDERSTOOD:
            shown = shorten(entry if isinstance(entry, str) else json.dumps(entry))
            return f"requires {shown}, which this version does not know; use a newer version of metasilvae"
    if "features" in content:
        problem = names_problem(content["features"], model.n_features)
        if problem is not None:
            return problem
    if MISSING in content:
        problem = _directions_problem(content[MISSING], model)
        if problem is not None:
            return problem
    voting = content.get("voting")
    if voting is not None and voting not in VOTINGS:
        return f"has the voting {shorten(voting)}; known are {', '.join(VOTINGS)}"
    if voting is not None and VOTINGS[voting].leaf_kind is not model.leaf_kind:
        return f"has the voting {voting!r}, which does not fit {model.leaf_kind.value} leaves"
    if not _is_unicode(json.dumps(content, ensure_ascii=False)):
        return "holds half of a surrogate pair, which is not Unicode text"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_memory(n_bytes: int, what: str) -> None:
    allowed = allowed_memory()
    if n_bytes * _MEMORY_PER_BYTE > allowed:
        raise ModelError(f"{what} is too large, {n_bytes} bytes: {describe_allowed(allowed)}")


def _refuse_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shorten(key)} occurs twice")
    return content


def _parse_finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{shorten(text)} is too large")
    return number


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")

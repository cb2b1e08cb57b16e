"""Exports as source code with exactly the predictions of the model: C99, or Python without dependencies.

Nodes are in a table that a loop walks, so that deep trees compile too. Weights are whole numbers; in C, long ones are
divided into limbs of 32 bits, whose sums cannot overflow and are compared without rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from metasilvae.interop.exports.leaves import check_directions, name_features, whole_weights
from metasilvae.model import MISSING_LEFT, Model, name_kind

LIMB_BITS = 32
_SHORTEST = 62

_C_BODY = """\
#include <math.h>
#include <stdint.h>
#include <string.h>

enum {{ MODEL_FEATURES = {n_features}, MODEL_LABELS = {n_labels}, MODEL_TREES = {n_trees}, MODEL_LIMBS = {n_limbs} }};

const char *const model_labels[MODEL_LABELS] = {{
{labels}
}};

/* In a split: feature, threshold, position of the right child; the left child is the next node.{missing_comment}
   In a leaf: -1, 0, number of the leaf. */
static const struct {{ int32_t feature; double threshold; int32_t right;{missing_field} }} nodes[] = {{
{nodes}
}};

static const int32_t roots[MODEL_TREES] = {{
{roots}
}};

/* Weight of each leaf for each label; limbs of 32 bits, the lowest first. */
static const int64_t weights[][MODEL_LABELS][MODEL_LIMBS] = {{
{weights}
}};

/* Marks the labels that the model predicts for a row x, and returns their number: several if they tie, none if x
   contains an infinite value{nan_note}. */
int model_predict(const double x[MODEL_FEATURES], unsigned char is_predicted[MODEL_LABELS])
{{
    int64_t sums[MODEL_LABELS][MODEL_LIMBS];
    int best = 0, n_predicted = 0;
    memset(is_predicted, 0, MODEL_LABELS);
    for (int feature = 0; feature < MODEL_FEATURES; feature++)
        if ({is_bad}(x[feature]))
            return 0;
    memset(sums, 0, sizeof sums);
    for (int tree = 0; tree < MODEL_TREES; tree++) {{
        int32_t node = roots[tree];
        while (nodes[node].feature >= 0)
            node = {goes_left} ? node + 1 : nodes[node].right;
        for (int label = 0; label < MODEL_LABELS; label++)
            for (int limb = 0; limb < MODEL_LIMBS; limb++)
                sums[label][limb] += weights[nodes[node].right][label][limb];
    }}
    for (int label = 0; label < MODEL_LABELS; label++)
        for (int limb = 0; limb + 1 < MODEL_LIMBS; limb++) {{
            sums[label][limb + 1] += sums[label][limb] / ((int64_t)1 << 32);
            sums[label][limb] %= (int64_t)1 << 32;
        }}
    for (int label = 1; label < MODEL_LABELS; label++)
        for (int limb = MODEL_LIMBS - 1; limb >= 0; limb--)
            if (sums[label][limb] != sums[best][limb]) {{
                if (sums[label][limb] > sums[best][limb])
                    best = label;
                break;
            }}
    for (int label = 0; label < MODEL_LABELS; label++) {{
        is_predicted[label] = memcmp(sums[label], sums[best], sizeof sums[label]) == 0;
        n_predicted += is_predicted[label];
    }}
    return n_predicted;
}}

#ifdef MODEL_MAIN
#include <stdio.h>
#include <stdlib.h>

/* The next line of standard input without its end, NULL if there is none. */
static char *read_line(void)
{{
    static char *line = NULL;
    static size_t capacity = 0;
    size_t length = 0;
    int c = getchar();
    if (c == EOF)
        return NULL;
    for (; c != EOF && c != '\\n'; c = getchar()) {{
        if (length + 2 > capacity) {{
            capacity = 2 * capacity + 256;
            line = realloc(line, capacity);
            if (line == NULL) {{
                fprintf(stderr, "not enough memory\\n");
                exit(1);
            }}
        }}
        line[length++] = (char)c;
    }}
    if (line == NULL && (line = malloc(capacity = 256)) == NULL)
        exit(1);
    line[length] = 0;
    return line;
}}

/* Reads rows from standard input, one per line, separated by commas or blanks, and prints the prediction of each. */
int main(void)
{{
    static double x[MODEL_FEATURES];
    unsigned char is_predicted[MODEL_LABELS];
    const char *const blanks = " \\t\\r";
    char *line;
    for (long row = 1; (line = read_line()) != NULL; row++) {{
        const int has_commas = strchr(line, ',') != NULL;
        char *place = line + strspn(line, blanks), *end;
        int n_values = 0;
        if (*place == 0)
            continue;
        while (*place) {{
            const size_t width = strcspn(place, has_commas ? "," : blanks);
            const double value = strtod(place, &end);
            end += strspn(end, blanks);
            if (end == place || (has_commas ? end != place + width : end < place + width) || {is_bad}(value)
                || strcspn(place, "xX") < width) {{
                fprintf(stderr, "line %ld: '%.*s' is not a finite number\\n", row, (int)width, place);
                return 1;
            }}
            if (n_values < MODEL_FEATURES)
                x[n_values] = value;
            n_values++;
            place = end;
            if (*place == ',') {{
                place++;
                place += strspn(place, blanks);
                if (*place == 0) {{
                    fprintf(stderr, "line %ld: '' is not a finite number\\n", row);
                    return 1;
                }}
            }}
        }}
        if (n_values != MODEL_FEATURES) {{
            fprintf(stderr, "line %ld: %d numbers, expected %d\\n", row, n_values, MODEL_FEATURES);
            return 1;
        }}
        model_predict(x, is_predicted);
        const char *separator = "";
        for (int label = 0; label < MODEL_LABELS; label++)
            if (is_predicted[label]) {{
                printf("%s%s", separator, model_labels[label]);
                separator = ",";
            }}
        printf("\\n");
    }}
    return 0;
}}
#endif
"""


_C_FINITE = {
    "missing_comment": "",
    "missing_field": "",
    "nan_note": " or NaN",
    "is_bad": "!isfinite",
    "goes_left": "x[nodes[node].feature] <= nodes[node].threshold",
}
# For models that take missing values.
_C_MISSING = {
    "missing_comment": "\n   Then 1 if missing values (NaN) go to the left child.",
    "missing_field": " unsigned char missing_left;",
    "nan_note": "; NaN is a missing value",
    "is_bad": "isinf",
    "goes_left": (
        "(isnan(x[nodes[node].feature]) ? nodes[node].missing_left\n"
        "                    : x[nodes[node].feature] <= nodes[node].threshold)"
    ),
}


def write_c(model: Model, feature_names: Sequence[str] | None, voting: str) -> str:
    """C source of the predictor."""
    check_directions(model)
    weights = whole_weights(model, voting)
    n_limbs = _count_limbs(weights, model.n_trees)
    kind = f"{name_kind(True, model.n_trees)}, voting {voting}" if model.is_forest else "decision tree"
    names = name_features(model, feature_names)
    used = ", ".join(f"x[{feature}] {names[feature]}" for feature in model.tested_features.tolist())
    head = f"/* A {kind}; exported by metasilvae.\n" + (f"   Features: {_comment(used)}\n" if feature_names else "")
    head += "   Compile without -ffast-math; with -DMODEL_MAIN it is a program that classifies rows. */\n"
    nodes = []
    for threshold, feature, _, right, leaf in model.nodes.tolist():
        is_leaf = feature < 0
        direction = f", {int(leaf == MISSING_LEFT)}" if model.has_directions else ""
        split = f"{feature}, {threshold.hex()}, {right}"
        nodes.append(f"    {{{f'-1, 0, {leaf}' if is_leaf else split}{direction}}},")
    variant = _C_MISSING if model.has_directions else _C_FINITE
    return head + _C_BODY.format(
        **variant,
        n_features=model.n_features,
        n_labels=model.n_labels,
        n_trees=model.n_trees,
        n_limbs=n_limbs,
        labels="\n".join(f"    {_quote(label)}," for label in model.labels),
        nodes="\n".join(nodes),
        roots="\n".join(f"    {root}," for root in model.roots.tolist()),
        weights="\n".join(f"    {{{', '.join(_limbs(value, n_limbs) for value in row)}}}," for row in weights),
    )


def _count_limbs(weights: list[list[int]], n_trees: int) -> int:
    """One limb if all sums fit into 64 bits; else the top limb holds the sign and the carry of sums."""
    n_bits = max((abs(value) * n_trees).bit_length() for row in weights for value in row)
    return 1 if n_bits <= _SHORTEST else -(-n_bits // LIMB_BITS) + 1


def _limbs(value: int, n_limbs: int) -> str:
    parts = []
    for _ in range(n_limbs - 1):
        parts.append(value & ((1 << LIMB_BITS) - 1))
        value >>= LIMB_BITS
    return "{" + ", ".join(map(str, [*parts, value])) + "}"


def _quote(text: str) -> str:
    """A string literal; other characters than plain ASCII become the octal codes of their UTF-8 bytes."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode())
    return '"' + "".join(plain) + '"'


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ").encode("ascii", "backslashreplace").decode()


_PYTHON_BODY = '''\
"""A {kind}; exported by metasilvae."""

from math import {imported}

FEATURES = {features}
LABELS = {labels}
# A split is (feature, threshold, position of the right child{missing_comment}), its left child is the next node; a leaf
# is a number.
NODES = [
{nodes}
]
ROOTS = {roots}
# Weight of each leaf for each label: whole numbers, so that sums are exact.
WEIGHTS = [
{weights}
]


def predict(x):
    """The labels that the model predicts for a row of {n_features} finite numbers{nan_note}: several if they tie."""
    if len(x) != {n_features}:
        raise ValueError("%d numbers, expected {n_features}" % len(x))
    for value in x:
        if {is_bad}:
            raise ValueError("%r is not a finite number" % value)
    scores = [0] * len(LABELS)
    for node in ROOTS:
        entry = NODES[node]
        while isinstance(entry, tuple):
            feature, threshold, right{missing_name} = entry
            node = node + 1 if {goes_left} else right
            entry = NODES[node]
        scores = [score + weight for score, weight in zip(scores, WEIGHTS[entry])]
    best = max(scores)
    return [label for label, score in zip(LABELS, scores) if score == best]


if __name__ == "__main__":
    import sys

    for number, line in enumerate(sys.stdin, 1):
        if line.strip():
            try:
                if "_" in line:
                    raise ValueError("%r holds an underscore" % line.strip())
                labels = predict([float(cell) for cell in (line.split(",") if "," in line else line.split())])
            except ValueError as error:
                sys.exit("line %d: %s" % (number, error))
            print(",".join(labels))
'''


_PYTHON_FINITE = {
    "missing_comment": "",
    "imported": "isfinite",
    "is_bad": "not isfinite(value)",
    "missing_name": "",
    "goes_left": "x[feature] <= threshold",
    "nan_note": "",
}
_PYTHON_MISSING = {
    "missing_comment": ", whether NaN goes left",
    "imported": "isinf",
    "is_bad": "isinf(value)",
    "missing_name": ", missing_left",
    "goes_left": "(missing_left if x[feature] != x[feature] else x[feature] <= threshold)",
    "nan_note": " or NaN (missing)",
}


def write_python(model: Model, feature_names: Sequence[str] | None, voting: str) -> str:
    """Python source of the predictor."""
    check_directions(model)
    nodes = []
    for threshold, feature, _, right, leaf in model.nodes.tolist():
        direction = f", {leaf == MISSING_LEFT}" if model.has_directions else ""
        nodes.append(f"    {leaf}," if feature < 0 else f"    ({feature}, {threshold!r}, {right}{direction}),")
    return _PYTHON_BODY.format(
        **(_PYTHON_MISSING if model.has_directions else _PYTHON_FINITE),
        kind=f"{name_kind(True, model.n_trees)}, voting {voting}" if model.is_forest else "decision tree",
        features=ascii(list(feature_names)) if feature_names else None,
        labels=ascii(list(model.labels)),
        nodes="\n".join(nodes),
        roots=model.roots.tolist(),
        weights="\n".join(f"    {row}," for row in whole_weights(model, voting)),
        n_features=model.n_features,
    )

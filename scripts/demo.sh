#!/bin/sh
# The demonstration of `make demo`: trains, verifies, attacks and evaluates a tree and an ordinary one. Needs no network.
#   BIN=.venv/bin OUT=demo-output sh scripts/demo.sh
set -eu
BIN=${BIN:-.venv/bin}
OUT=${OUT:-demo-output}
mkdir -p "$OUT"
exec 3>&1

say() {
    printf '\n# %s\n' "$*"
}

# Shows a command even where its output goes elsewhere.
run() {
    line=metasilvae
    for word in "$@"; do
        case $word in
            *[\ \<\>]*) line="$line '$word'" ;;
            *) line="$line $word" ;;
        esac
    done
    printf '$ %s\n' "$line" >&3
    "$BIN/metasilvae" "$@"
}

say "Train a tree for breast cancer data that withstands changes of every value by 0.01"
run train builtin:breast-cancer/train "$OUT/cancer.silva" --epsilon 0.01 --test builtin:breast-cancer/test \
    --log "$OUT/training.jsonl"

say "For which test rows is its prediction proved stable?"
run verify "$OUT/cancer.silva" builtin:breast-cancer/test --epsilon 0.01 --format text

say "The same in silva's format, with an adversarial example for each unstable row"
run verify "$OUT/cancer.silva" builtin:breast-cancer/test --epsilon 0.01 --output "$OUT/verdicts.silva" \
    --counterexamples "$OUT/counterexamples.csv" > /dev/null
tail -n 2 "$OUT/verdicts.silva"

say "Adversarial examples are data: the tree confirms the other predictions"
run predict "$OUT/cancer.silva" "$OUT/counterexamples.csv" --format csv

say "An ordinary decision tree for the same data is less robust"
run train builtin:breast-cancer/train "$OUT/cancer-cart.silva" --epsilon 0.01 --preset cart > /dev/null
run evaluate "$OUT/cancer.silva" "$OUT/cancer-cart.silva" builtin:breast-cancer/test --epsilon 0.01 --epsilon 0.02
run evaluate "$OUT/cancer.silva" "$OUT/cancer-cart.silva" builtin:breast-cancer/test --epsilon 0.01 --epsilon 0.02 \
    --format markdown --output "$OUT/evaluation.md"

say "A report page for the browser"
run report "$OUT/cancer.silva" builtin:breast-cancer/train builtin:breast-cancer/test --epsilon 0.01 \
    --output "$OUT/report.html"

say "The illustration of the paper: is a point inside a circle? An ordinary tree and ours, on training and test rows"
run train builtin:circle/train "$OUT/circle-cart.silva" --epsilon 0.02 --preset cart > /dev/null
run train builtin:circle/train "$OUT/circle.silva" --epsilon 0.02 --leaf-penalty 0.2 --min-samples-leaf 1 \
    --training-epsilon-factor 1 > /dev/null
run evaluate "$OUT/circle-cart.silva" "$OUT/circle.silva" builtin:circle/train --epsilon 0.02
run evaluate "$OUT/circle-cart.silva" "$OUT/circle.silva" builtin:circle/test --epsilon 0.02
run export "$OUT/circle.silva" --to text --data builtin:circle/test

say "A tree can be piped to the next program; a requirement sets the exit code (0: holds, 3: violated)"
code=0
echo "\$ metasilvae train builtin:iris/train - --epsilon 0.1 |" \
    "metasilvae verify - builtin:iris/test --epsilon 0.1 --require 'stability>=0.99'"
"$BIN/metasilvae" train builtin:iris/train - --epsilon 0.1 2> "$OUT/iris-report.txt" |
    "$BIN/metasilvae" verify - builtin:iris/test --epsilon 0.1 --require 'stability>=0.99' --format text || code=$?
printf 'exit code %s\n' "$code"
[ "$code" -eq 0 ] || [ "$code" -eq 3 ]

printf '\nThe results are in %s:\n' "$OUT"
ls "$OUT"

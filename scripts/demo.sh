#!/bin/sh
# What `make demo` shows: a small shipped model is read, verified, fooled and evaluated. Needs no network.
#   BIN=.venv/bin OUT=demo-output sh scripts/demo.sh
set -eu
BIN=${BIN:-.venv/bin}
OUT=${OUT:-demo-output}
MODEL=builtin:iris/tree.silva
DATA=builtin:iris/test
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

say "A tree for Fisher's iris flowers that ships with the project"
run export "$MODEL" --to text --data "$DATA"

say "How often is it right, and can measuring 1 mm wrong change its answer?"
run verify "$MODEL" "$DATA" --epsilon 0.1 --format text

say "The same as silva's report, with a counterexample for each unstable row"
run verify "$MODEL" "$DATA" --epsilon 0.1 --output "$OUT/verdicts.silva" --counterexamples "$OUT/counterexamples.csv" \
    > /dev/null
tail -n 2 "$OUT/verdicts.silva"
cat "$OUT/counterexamples.csv"

say "The counterexamples are data: the model really answers as promised in the last column"
run predict "$MODEL" "$OUT/counterexamples.csv" --format csv

say "A table over several perturbations"
run evaluate "$MODEL" "$DATA" --epsilon 0 --epsilon 0.05 --epsilon 0.1 --epsilon 0.2 --confusion
run evaluate "$MODEL" "$DATA" --epsilon 0 --epsilon 0.05 --epsilon 0.1 --epsilon 0.2 --format markdown \
    --output "$OUT/evaluation.md"

say "A gate for scripts: exit code 0 if it holds, 3 if it is violated"
code=0
run verify "$MODEL" "$DATA" --epsilon 0.1 --require 'stability>=0.95' --output "$OUT/verdicts.json" || code=$?
printf 'exit code %s\n' "$code"
[ "$code" -eq 3 ]

printf '\nThe results are in %s:\n' "$OUT"
ls "$OUT"

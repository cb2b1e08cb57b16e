#!/bin/sh
# The picture of the README: an ordinary tree and ours for the illustration of the paper. Models go to the current folder.
#   BIN=/path/to/bin OUT=circle.svg sh scripts/draw_circle.sh
set -eu
metasilvae=${BIN:+$BIN/}metasilvae
"$metasilvae" train builtin:circle/train cart.silva --epsilon 0.02 --preset cart > /dev/null
"$metasilvae" train builtin:circle/train metasilvae.silva --epsilon 0.02 --leaf-penalty 0.2 --min-samples-leaf 1 \
    --training-epsilon-factor 1 > /dev/null
"$metasilvae" plot regions cart.silva metasilvae.silva builtin:circle/train --epsilon 0.02 -o "${OUT:-circle.svg}"

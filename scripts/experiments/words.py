"""The text of the document about the paper's experiments; `experiments.document` inserts tables and numbers."""

INTRODUCTION = """
This page repeats the experiments of F. Ranzato and M. Zanella, *Genetic Adversarial Training of Decision Trees*, GECCO
2021 ([arXiv](https://arxiv.org/abs/2012.11352)), with metasilvae instead of their programs, and compares the results
with the published ones. `make paper` generates this page (`scripts/paper.py`; here {mode} mode, seeds from {seed} on);
an interrupted run resumes where it stopped. All our numbers come from [{figures}/results.json]({figures}/results.json).
No row of a test split takes part in any choice. The results are of the commits listed under [Provenance](#provenance);
results of the present version are in the [README](../README.md#results).
"""

DATA = """
The splits and scales are the authors' own, from their
[data-collection](https://github.com/abstract-machine-learning/data-collection); the split of sensorless-10k is ours.
Epsilon is the paper's. "Largest class" is the fraction of test rows that belong to the most frequent class of the
training rows: the accuracy of a single leaf.
"""

TRAINING = """
One tree per set, with the same default options for all sets; only epsilon differs. Accuracy and stability are in per
cent on the test split; phi = 0.9 accuracy + 0.1 stability. Our numbers are medians over the seeds, each metric by
itself; seconds are processor time of one core. "paper" is the published tree, which its authors chose from many seeds
and several training radii; [comparison.md](comparison.md#programs-on-the-same-rows) has figures of their program. The
test splits of the four small sets have 50 to 154 rows, which cannot rank methods; the [README](../README.md#results)
has results by cross-validation. On ionosphere, whose test split holds one class, a single leaf has 100 / 100, so that
row says nothing. For all of sensorless, which runs only if it is named (`--sets sensorless`), the paper reports
{sensorless} with {leaves} leaves.
"""

WEIGHTS = """
The objective is phi = w accuracy + (1 - w) stability, with w from 0 to 1. The table shows accuracy / stability in per
cent on the test split, which takes part in no choice; {seeds}. At w = 0 a single leaf is best, because it is always
stable. Stability mostly remains at w = 1, because the default robust weight moves part of the accuracy weight to robust
accuracy; it falls where tuning sets this weight to 0. The bands are quartiles.
"""

CONVERGENCE = """
The plot shows phi of the best tree so far on the training rows, with the training boxes, step by step, for two presets.
`{published}` is the genetic algorithm of the paper with the parameters of its program; a step is a generation. A step
of `{preset}` is a grown tree, a tuning trial, a generation, or a pass of the local search. Its phi may fall from one
phase to the next: after tuning, boxes are larger and leaves have a penalty.
"""

VARIANCE = """
The table shows phi on the test split over the seeds, and how many seeds reach the phi of the published tree. The plot
shows the sets with at least {fewest} seeds.
"""

FORESTS = """
Random forests of scikit-learn are chosen by the same phi. The grid is that of the forests in the authors' collection
(`domains/collision-detection/models/random-forest`, named by trees, depth and criterion): {trees} trees, depths
{depths}, {criteria}, which gives {n_forests} forests for each set. How the paper chose among forests is not known to
us. Here each forest is fitted to three quarters of the training rows and verified exactly on at most {most_held_out} of
the others. The one with the best phi, the smallest among equals, is fitted to all training rows and evaluated on the
test split. Votes are averaged, as in scikit-learn. Our tree is the median of the seeds, our forest that of the first
seed. A row that is not decided within {steps} boxes counts as unstable; among the test rows there {undecided}.
"""

LARGE_FORESTS = """
The paper's forests of 50 trees have (accuracy / stability): {forests}.
"""

MISSING_FORESTS = """
Our forests for {sets} take long and are not part of a full run. This command trains them, without the grid of random
forests:
"""

EFFICIENCY = """
Efficiency is accuracy or stability, in per cent of the test rows, divided by the number of leaves. Verification is
exact; its time is processor time of one core per test row, including the predictions. The paper's times are from
another machine and are omitted.
"""

BOOSTING = """
Robust boosting trains for robust accuracy, our tree and forest for phi;
[benchmarks.md](benchmarks.md#boosted-models-for-robust-accuracy) has boosted models of ours. The table shows accuracy /
robust accuracy in per cent. Robust boosting: M. Andriushchenko and M. Hein, *Provably Robust Boosted Decision Stumps
and Trees against Adversarial Attacks*, NeurIPS 2019, [arXiv](https://arxiv.org/abs/1906.03526), as quoted in the GECCO
paper. This script did not measure it, its test rows may differ, and its robust accuracy is a lower bound.
[comparison.md](comparison.md#programs-on-the-same-rows) has figures of its authors' program.
"""

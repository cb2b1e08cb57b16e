"""The text of the document about the paper's experiments; tables and numbers are put in by `experiments.document`."""

INTRODUCTION = """
F. Ranzato and M. Zanella, *Genetic Adversarial Training of Decision Trees*, GECCO 2021
([arXiv](https://arxiv.org/abs/2012.11352)), with metasilvae instead of their programs, beside what they published.
`make paper` makes this page (`scripts/paper.py`; here {mode} mode, seeds from {seed} on); a run that was interrupted
goes on where it ended. All figures that are ours come from [{figures}/results.json]({figures}/results.json). No row
of a test split has a say in any choice.
"""

DATA = """
The authors' own splits and scales, from their
[data-collection](https://github.com/abstract-machine-learning/data-collection); the split of sensorless-10k is ours.
Epsilon is the paper's. "Largest class" is the share of test rows of the class that most training rows have: what one
leaf gets.
"""

TRAINING = """
One tree, the same default options for all sets; only epsilon differs. Accuracy and stability in per cent on the test
split, phi = 0.9 accuracy + 0.1 stability. Ours is the median over the seeds, each figure by itself; seconds are those
of one processor core. "paper" is the published tree, which its authors picked from many seeds and several training
radii. "C" is the median of their program with the paper's weights (10 seeds on the small sets, 3 on the others),
measured beforehand and not repeated by this script. The test splits of the four small sets have 50 to 154 rows, which
cannot rank methods; the [README](../README.md#results) has figures by cross-validation. On ionosphere,
whose test split holds one class, a single leaf has 100 / 100: that row says nothing. For all of sensorless, which is
run only if it is named (`--sets sensorless`), the paper has {sensorless} with {leaves} leaves.
"""

WEIGHTS = """
phi = w accuracy + (1 - w) stability, w from 0 to 1. Accuracy / stability in per cent on the test split, which chooses
nothing; {seeds}. At w = 0 one leaf is best, it is stable everywhere. Stability mostly stays at w = 1, because the
standard setting gives part of the weight of accuracy to rows that are right within their whole box; where the
tuning turns that off, it falls. The bands are quartiles.
"""

CONVERGENCE = """
phi of the best tree so far on the training rows, with the boxes of the training, step by step, for two presets.
`{published}` is the genetic algorithm of the paper with the parameters of its program; a step is a generation. A step
of `{preset}` is a tree that is grown, a setting that is tuned, a generation, or a round of polishing. Its phi may
fall from one phase to the next: after the tuning boxes are larger, and leaves cost something.
"""

VARIANCE = """
phi on the test split over the seeds, and how many seeds reach the phi of the published tree. The picture shows the
sets with at least {fewest} seeds.
"""

FORESTS = """
Random forests of scikit-learn, chosen by the same phi. The grid is that of the forests in the authors' collection
(`domains/collision-detection/models/random-forest`, named by trees, depth and criterion): {trees} trees, depths
{depths}, {criteria}, which makes {n_forests} forests for each set. How the paper chose among forests is not known to
us. Here each is fitted to three quarters of the training rows and verified exactly on at most {most_held_out} of the
others; the one with the best phi, among equals the smallest, is fitted to all training rows and judged by the test
split. Votes are averaged, as scikit-learn does. Our tree is the median of the seeds, our forest that of the first
seed. A row that is not decided within {steps} boxes counts as unstable; among the test rows there {undecided}.
"""

LARGE_FORESTS = """
The paper's forests of 50 trees (accuracy / stability): {forests}.
"""

EFFICIENCY = """
Efficiency is accuracy or stability, in per cent of the test rows, divided by the number of leaves. Verification is
exact; its time is that of one processor core for each test row, answers included. Times of the paper are those of
another machine and are left out.
"""

BOOSTING = """
Accuracy / robustness in per cent. Robust boosting: M. Andriushchenko and M. Hein, *Provably Robust Boosted Decision
Stumps and Trees against Adversarial Attacks*, NeurIPS 2019, [arXiv](https://arxiv.org/abs/1906.03526), as the GECCO
paper quotes it. It was not measured by this script ([comparison.md](comparison.md#robust-boosting) has measured
figures), its test rows need not be the same, and its robustness is a lower bound. It trains for robustness, ours for
phi.
"""

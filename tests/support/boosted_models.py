"""Small model files of boosting libraries."""

from __future__ import annotations

import json
from typing import Any

TWO = {"objective": {"name": "binary:logistic"}, "learner_model_param": {"base_score": "5E-1", "num_feature": "1"}}


STUMP = {
    "left_children": [1, -1, -1],
    "right_children": [2, -1, -1],
    "split_indices": [0, 0, 0],
    "split_conditions": [0.5, -1.0, 1.0],
}


def xgboost_document(**changes: Any) -> str:
    booster = {"name": "gbtree", "model": {"trees": [{**STUMP, **changes}], "tree_info": [0]}}
    return json.dumps({"learner": {**TWO, "gradient_booster": booster}})


LIGHTGBM = """\
tree
version=v4
num_class=1
num_tree_per_iteration=1
max_feature_idx=0
objective=binary sigmoid:1

Tree=0
num_leaves=3
num_cat=0
split_feature=0 0
threshold=0.5 1.5
decision_type=2 2
left_child=-1 -2
right_child=1 -3
leaf_value=-1 0.25 1
is_linear=0

end of trees
"""


DUMP = """\
booster[0]:
0:[f0<0.400000006] yes=1,no=2,missing=1,gain=40.2420502,cover=36.5400009
	1:[f1<-1] yes=3,no=4,missing=4,gain=27.4031754,cover=25.3344002
		3:leaf=0.378065437,cover=4.87199974
		4:leaf=-0.359512448,cover=20.4624004
	2:leaf=0.450285167,cover=11.2055998
"""
JSON_DUMP = """\
[
  { "nodeid": 0, "depth": 0, "split": "f0", "split_condition": 0.400000006, "yes": 1, "no": 2, "children": [
    { "nodeid": 1, "depth": 1, "split": "f1", "split_condition": -1, "yes": 3, "no": 4, "missing": 4 , "children": [
      { "nodeid": 3, "leaf": 0.378065437 },
      { "nodeid": 4, "leaf": -0.359512448 }
    ]},
    { "nodeid": 2, "leaf": 0.450285167 }
  ]}
]
"""


CATBOOST: dict[str, Any] = {
    "features_info": {"float_features": [{"flat_feature_index": 1, "feature_index": 0}]},
    "model_info": {
        "params": {"loss_function": {"type": "Logloss"}},
        "class_params": {"class_names": ["no", "yes"]},
    },
    "oblivious_trees": [
        {
            "splits": [{"float_feature_index": 0, "border": 1.5, "split_type": "FloatFeature"}],
            "leaf_values": [-1, 1],
        }
    ],
    "scale_and_bias": [1, [0]],
}

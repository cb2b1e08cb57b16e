"""The section about the model: facts, and the frame that the script draws trees into."""

from __future__ import annotations

from metasilvae.model import Model, name_kind
from metasilvae.model_summary import summarize
from metasilvae.page.content import PageContent
from metasilvae.page.label_order import order_labels
from metasilvae.page.markup import Child, Markup, element, embed_json, join
from metasilvae.page.pieces import cut_name, list_names, make_note
from metasilvae.page.tree_data import describe_trees

# Labels that are listed.
MOST_LABELS = 10
HINT = (
    "Drag to move, pinch to zoom; the wheel zooms while a node is selected, or with Ctrl. A click or Enter folds and "
    "unfolds a node, arrow keys go from node to node, + and - zoom, 0 fits."
)
NO_SCRIPT = (
    "The drawing needs JavaScript; everything else on this page does without. `metasilvae export MODEL --to text` "
    "prints the model."
)


def show_model(content: PageContent) -> Markup:
    """Size and shape, and a drawing to move in and to fold."""
    crossings = [each.attribution.crossed_nodes for each in content.assessments]
    drawing = describe_trees(content.model, content.feature_names, crossings)
    drawing["sets"] = [cut_name(name) for name in content.short_names]
    n_drawn = len(drawing["trees"])
    buttons = [
        element("button", label, type="button", data_action=action, aria_label=description)
        for label, action, description in (
            ("Fit", "fit", "Fit the drawing into its frame"),
            ("+", "in", "Zoom in"),
            ("\N{MINUS SIGN}", "out", "Zoom out"),
            ("Unfold", "unfold", "Unfold all nodes"),
            ("Fold", "fold", "Fold all nodes"),
        )
    ]
    titles = [f"tree {number + 1} of {content.model.n_trees}" for number in range(n_drawn)]
    options = [element("option", title, value=number) for number, title in enumerate(titles)]
    chooser = element("label", "Tree ", element("select", options, id="tree-choice")) if n_drawn > 1 else None
    missing = content.model.n_trees - n_drawn
    note = f"The last {missing} trees are not drawn, to keep the page small." if missing else None
    return join(
        _show_facts(content.model, content.voting),
        element("div", chooser, element("div", buttons, role="group", aria_label="Drawing"), class_="tools"),
        element("div", id="drawing", class_="drawing"),
        element("ul", id="class-colors", class_="legend", aria_label="Colours of classes"),
        element("p", id="tree-extent", class_="note"),
        make_note(note) if note else None,
        element("div", id="node-details", class_="details", aria_live="polite"),
        make_note(HINT),
        element("noscript", element("p", NO_SCRIPT, class_="warning")),
        embed_json("tree-data", drawing),
    )


def _show_facts(model: Model, voting: str) -> Markup:
    """Size and shape of the model."""
    summary = summarize(model)
    facts: list[tuple[str, Child]] = [
        ("kind", name_kind(model.is_forest, model.n_trees)),
        ("leaves", summary.n_leaves),
        ("nodes", model.n_nodes),
        ("depth", model.max_depth),
        ("features", f"{len(model.tested_features)} tested of {model.n_features}"),
        ("labels", join(f"{model.n_labels}: ", list_names(order_labels(model.labels), MOST_LABELS))),
    ]
    if model.n_trees > 1:
        facts.append(("voting", voting))
    if summary.n_unreachable:
        facts.append(("unreachable leaves", summary.n_unreachable))
    return element(
        "dl", [element("div", element("dt", name), element("dd", fact)) for name, fact in facts], class_="facts"
    )

"""The page as a whole: its head, its sections in order, and the policy that forbids to load anything else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from metasilvae.output.html.content import PageContent
from metasilvae.output.html.curves import show_curve
from metasilvae.output.html.markup import Child, Column, Markup, element, join, make_note, make_table, show_name
from metasilvae.output.html.model import show_model
from metasilvae.output.html.overview import show_classes, show_confusion, show_metrics, show_requirements, show_verdicts
from metasilvae.output.html.rows import show_attribution, show_changes, show_fragile_rows
from metasilvae.output.html.threat_model import list_perturbation_files, show_perturbation

STYLES = ("page.css",)
SCRIPTS = ("svg_pieces.js", "tree_view.js", "tree.js", "curve.js", "scroll.js")


def write_page(content: PageContent) -> str:
    """The page as HTML. The same content gives the same text."""
    style, script = (join_files(names) for names in (STYLES, SCRIPTS))
    perturbation, changes = show_perturbation(content), show_changes(content)
    target = content.target or ""
    # Name, heading, and a shorter one for the list of sections.
    sections = [
        ("figures", "Key metrics", "Metrics", show_metrics(content)),
        *([("perturbation", "Threat model", "Threat model", perturbation)] if perturbation else []),
        ("model", "Model", "Model", show_model(content)),
        ("verdicts", "Verdicts", "Verdicts", show_verdicts(content)),
        ("curve", "Stability curve", "Curve", show_curve(content)),
        ("classes", "Classes", "Classes", show_classes(content)),
        ("confusion", "Confusion matrix", "Confusion", show_confusion(content)),
        ("fragile", "Most fragile rows", "Fragile rows", show_fragile_rows(content)),
        ("attribution", "Features driving instability", "Features", show_attribution(content)),
        *([("changes", join("Changes to ", show_name(target)), "Changes", changes)] if changes else []),
        ("origin", "How this page was made", "Origin", show_origin(content)),
    ]
    title = f"{content.model.source}: metasilvae report"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_make_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", title),
        element("style", Markup(style)),
    )
    links = [element("li", element("a", short, href=f"#{name}")) for name, _, short, _ in sections]
    parts = [_make_section(name, heading, part) for name, heading, _, part in sections]
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        _make_header(content, perturbation is not None),
        element("nav", element("ul", links), aria_label="Sections"),
        element("main", parts, id="content", tabindex=-1),
        element("footer", element("p", f"metasilvae {content.versions['metasilvae']}")),
        element("script", Markup(script)),
    )
    return join(Markup("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), "\n")


def join_files(names: Sequence[str]) -> str:
    """Text of files that ship with this package."""
    folder = resources.files("metasilvae.output.html")
    return "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names)


def _make_policy(style: str, script: str) -> str:
    """Only this style and this script are used, even if names in the data look like HTML."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; base-uri 'none'; "
        "form-action 'none'"
    )


def _make_section(name: str, heading: Child, *children: Child) -> Markup:
    title = element("h2", heading, id=f"{name}-heading")
    return element("section", title, children, id=name, aria_labelledby=f"{name}-heading")


def _make_header(content: PageContent, has_rules: bool) -> Markup:
    perturbations = list(dict.fromkeys(each.perturbation.describe() for each in content.assessments))
    warning = "The search was interrupted: rows without a verdict are NO-INFO, and not every unstable row is explained."
    return element(
        "header",
        element(
            "p",
            "metasilvae report",
            [" · ", element("time", content.date)] if content.date else None,
            class_="kicker",
        ),
        element("h1", show_name(content.model.source)),
        element(
            "p",
            "perturbation ",
            element("code", ", ".join(perturbations)),
            [" (", element("a", "details", href="#perturbation"), ")"] if has_rules else None,
        ),
        show_requirements(content),
        element("p", warning, class_="warning", role="status") if content.is_interrupted else None,
    )


def show_origin(content: PageContent) -> Markup:
    """The command line, the inputs and the versions."""
    model = content.model
    marks: list[list[Child]] = [["model", show_name(model.source), element("code", model.fingerprint)]]
    for dataset in (each.query.dataset for each in content.assessments):
        marks.append(["data", show_name(dataset.source), element("code", dataset.fingerprint)])
    marks += [[kind, show_name(name), element("code", mark)] for kind, name, mark in list_perturbation_files(content)]
    versions = [[name, version] for name, version in content.versions.items()]
    return join(
        element("pre", element("code", content.command), tabindex=0, role="region", aria_label="Command line"),
        make_table("inputs-table", "Inputs", [Column("kind"), Column("name"), Column("fingerprint")], marks),
        make_table("versions-table", "Versions", [Column("program"), Column("version")], versions),
        make_note(
            "The same command on the same files writes the same page, byte for byte, on the same date (--date), unless "
            "a time limit or an interrupt ends the search. A fingerprint depends on all values and labels, not on the "
            "name of the file."
        ),
    )

"""The section about how the page came about."""

from __future__ import annotations

from metasilvae.fingerprints import of_dataset, of_model
from metasilvae.page.content import PageContent
from metasilvae.page.markup import Child, Markup, element, join
from metasilvae.page.perturbation_section import list_perturbation_files
from metasilvae.page.pieces import Column, make_note, make_table, show_name


def show_origin(content: PageContent) -> Markup:
    """The command line, the inputs and the versions."""
    model = content.model
    marks: list[list[Child]] = [["model", show_name(model.source), element("code", of_model(model))]]
    for dataset in (each.question.dataset for each in content.assessments):
        marks.append(["data", show_name(dataset.source), element("code", of_dataset(dataset))])
    marks += [[kind, show_name(name), element("code", mark)] for kind, name, mark in list_perturbation_files(content)]
    versions = [[name, version] for name, version in content.versions.items()]
    return join(
        element("pre", element("code", content.command), tabindex=0, role="region", aria_label="Command line"),
        make_table("inputs-table", "Inputs", [Column("kind"), Column("name"), Column("fingerprint")], marks),
        make_table("versions-table", "Versions", [Column("program"), Column("version")], versions),
        make_note(
            "The same command on the same files writes the same page, byte for byte, unless a time limit or an "
            "interrupt ends the search. A fingerprint changes with any value or label, whatever the file is called."
        ),
    )

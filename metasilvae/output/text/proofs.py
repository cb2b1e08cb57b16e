"""Proofs about all inputs as text, CSV and JSON."""

from __future__ import annotations

import math
from collections.abc import Callable

from metasilvae.analysis.proofs import InputPair, Proof, ProofStatus
from metasilvae.analysis.stable_share import ROUNDING, StableShare
from metasilvae.output.text.headings import describe_model
from metasilvae.output.text.tables import Record, as_csv, as_text, dump_json, finite_or_none
from metasilvae.verification.budget import INTERRUPTED, STEPS, TIMEOUT

# Columns that both inputs share and that the text shows.
SHOWN = 12
REASONS = {
    TIMEOUT: "the time limit was reached (--time-limit)",
    STEPS: "the number of steps was reached (--max-steps)",
    INTERRUPTED: "the search was interrupted",
    ROUNDING: "some boxes are as thin as the rounding of numbers",
}
_NAMES = ("first", "second")


def name_cells(proof: Proof, pair: InputPair) -> list[tuple[str, list[str | float]]]:
    """Each column of the model with its value in both inputs; a missing value is empty."""
    names = proof.model.names
    if names.encoding is not None:
        columns = [column.name for column in names.encoding.columns]
        rows = [names.encoding.decode(x) for x in (pair.first, pair.second)]
    else:
        columns = list(names.names)
        rows = [["" if math.isnan(value) else value for value in x.tolist()] for x in (pair.first, pair.second)]
    return [(name, [one, other]) for name, one, other in zip(columns, *rows, strict=True)]


def write_text(proof: Proof) -> str:
    lines = [
        f"model   {describe_model(proof.model, proof.voting)}",
        f"inputs  {proof.space.description}",
        f"claim   {proof.claim}",
        "",
    ]
    if proof.status is ProofStatus.PROVED:
        lines.append("proved for every input")
    elif proof.status is ProofStatus.UNDECIDED:
        reason = REASONS.get(proof.reason or "", "the search ended early")
        lines.append(
            f"undecided, {reason}: no pair of inputs that refutes it was found, nor a proof that there is none"
        )
    else:
        assert proof.pair is not None
        lines += ["refuted by these two inputs", "", *_describe_pair(proof, proof.pair)]
    return "\n".join(lines) + "\n"


def _describe_pair(proof: Proof, pair: InputPair) -> list[str]:
    cells = name_cells(proof, pair)
    changed = [(name, values) for name, values in cells if values[0] != values[1]]
    shared = [(name, values[0]) for name, values in cells if values[0] == values[1]]
    records: list[Record] = [{"column": "prediction", **_by_input([",".join(each) for each in pair.predictions])}]
    if pair.leads is not None:
        records.append({"column": proof.lead_name, **_by_input([f"{lead:.6g}" for lead in pair.leads])})
    records += [{"column": name, **_by_input([_show(value) for value in values])} for name, values in changed]
    lines = as_text(records).rstrip("\n").split("\n")
    if shared:
        text = ", ".join(f"{name} {_show(value)}" for name, value in shared[:SHOWN])
        more = f" and {len(shared) - SHOWN} more (--format csv)" if len(shared) > SHOWN else ""
        lines += ["", f"both    {text}{more}"]
    return lines


def _by_input(texts: list[str]) -> dict[str, str]:
    return dict(zip(_NAMES, texts, strict=True))


def _show(value: str | float) -> str:
    return (value if isinstance(value, str) else repr(value)) or "missing"


def write_csv(proof: Proof) -> str:
    """A row for each of the two inputs; only the head if there are none."""
    names = proof.model.names
    columns = names.names if names.encoding is None else [column.name for column in names.encoding.columns]
    if proof.pair is None:
        return as_csv([dict.fromkeys(("input", "prediction", *columns), "")]).partition("\n")[0] + "\n"
    records = []
    for place, labels in enumerate(proof.pair.predictions):
        record: dict[str, str | float | int | None] = {"input": _NAMES[place], "prediction": ",".join(labels)}
        records.append(record | {name: values[place] for name, values in name_cells(proof, proof.pair)})
    return as_csv(records)


def write_json(proof: Proof) -> str:
    document: dict[str, object] = {
        "model": proof.model.source,
        "voting": proof.voting,
        "inputs": proof.space.description,
        "claim": proof.claim,
        "result": proof.status.value,
        **({} if proof.reason is None else {"reason": proof.reason}),
        "steps": proof.n_steps,
        "seconds": proof.seconds,
    }
    if proof.pair is not None:
        pair = proof.pair
        cells = name_cells(proof, pair)
        document["pair"] = {
            "predictions": [list(labels) for labels in pair.predictions],
            **({} if pair.leads is None else {"leads": [finite_or_none(lead) for lead in pair.leads]}),
            "changed": [name for name, values in cells if values[0] != values[1]],
            "columns": [name for name, _ in cells],
            "first": [values[0] if values[0] != "" else None for _, values in cells],
            "second": [values[1] if values[1] != "" else None for _, values in cells],
        }
    return dump_json(document)


PROOF_FORMATS: dict[str, Callable[[Proof], str]] = {"text": write_text, "csv": write_csv, "json": write_json}


def write_share_text(share: StableShare) -> str:
    lines = [
        f"model   {describe_model(share.model, share.voting)}",
        f"inputs  {share.space.description}",
        "",
    ]
    what = "the inputs" if share.space.domains.features or share.space.groups.n_groups else "the volume"
    if share.reason is None:
        lines.append(f"stable at epsilon {share.epsilon:g}: {100 * share.lower:.4f} % of {what}")
    else:
        reason = REASONS.get(share.reason, "the search ended early")
        lines.append(
            f"stable at epsilon {share.epsilon:g}: between {100 * share.lower:.4f} % and {100 * share.upper:.4f} % of "
            f"{what} ({reason})"
        )
    if share.estimate is not None:
        found = share.estimate
        lines.append(
            f"estimate, not proved: {100 * found.share:.1f} % \u00b1 {100 * found.margin:.1f} % with probability 0.99 "
            f"({found.n_inputs} random inputs, each of them verified)"
        )
    return "\n".join([*lines, f"boxes   {share.n_boxes}", ""])


def _share_record(share: StableShare) -> dict[str, str | int | float | None]:
    found = share.estimate
    return {
        "model": share.model.source,
        "voting": share.voting,
        "inputs": share.space.description,
        "epsilon": share.epsilon,
        "stable_share": share.lower,
        "at_most": share.upper,
        "boxes": share.n_boxes,
        "reason": share.reason,
        **({} if found is None else {"estimate": found.share, "margin": found.margin, "drawn": found.n_inputs}),
    }


SHARE_FORMATS: dict[str, Callable[[StableShare], str]] = {
    "text": write_share_text,
    "csv": lambda share: as_csv([_share_record(share)]),
    "json": lambda share: dump_json(_share_record(share)),
}

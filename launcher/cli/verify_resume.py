"""``relight verify-resume``."""

from __future__ import annotations

import json
from pathlib import Path

import click

from relight.resilience.exit_codes import EXIT_FAILED

from ..resume_proof import ProofImpossible, prove, remove_run
from .ckpt.diff import as_json_values, as_line, values_line
from .run import new_local_run
from .spec_arguments import with_spec


@click.command("verify-resume")
@with_spec
@click.option(
    "--at",
    type=click.IntRange(min=1),
    default=1,
    metavar="STEP",
    help="Restart the second run once it has done so many steps.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(path: Path, sets: tuple[str, ...], at: int, as_json: bool) -> None:
    """Run the job of SPEC twice on this machine, once with a restart, and compare the results.

    Every array and every plain value of the two last checkpoints must be the same, bit for bit;
    exit 1 when they are not, 2 when nothing could be compared. What differed before the restart
    already, and was never changed, does not count: generators that are neither seeded nor used.
    Give the job few steps: it is run to its end. The two runs are removed when they are the same.
    """
    undisturbed, disturbed = (new_local_run(path, sets, apart=True) for _ in range(2))
    try:
        proof = prove(undisturbed, disturbed, at)
    except ProofImpossible:
        if not any(disturbed.folder.journals.glob("*.jsonl")):  # it never began
            remove_run(disturbed)
        raise
    found = proof.comparison
    if as_json:
        told = {
            "runs": [undisturbed.run_id, disturbed.run_id],
            "step": proof.step,
            "resumed": proof.resumed,
            "same": found.same,
            "arrays": [as_json_values(one) for one in found.arrays],
            "values": list(found.values),
            "differed_before": proof.old,
        }
        click.echo(json.dumps(told))
    else:
        for difference in found.arrays:
            click.echo(as_line(difference))
        for key, both in found.values.items():
            click.echo(values_line(key, both))
        for key in proof.old:
            click.echo(
                f"{key}: differed before the restart already, as what is not seeded does, and is "
                "unchanged since: not caused by it"
            )
        resumed = ", ".join(map(str, proof.resumed))
        verdict = "is the same bit for bit" if found.same else "differs"
        click.echo(
            f"step {proof.step}, resumed from step {resumed} (asked for once step {at} was seen): "
            f"the state {verdict}"
        )
        if any(one.key == "rng/torch" for one in found.arrays):
            click.echo(
                "rng/torch: a DataLoader without a generator of its own may be why; see Data in "
                "docs/python-api.md"
            )
        if not found.same:
            runs = f"{undisturbed.run_id} {disturbed.run_id}"
            click.echo(f"both runs stay: `relight ckpt diff {runs}` compares them again")
    if found.same:
        remove_run(undisturbed)
        remove_run(disturbed)
    click.get_current_context().exit(0 if found.same else EXIT_FAILED)

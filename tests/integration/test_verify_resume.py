"""`relight verify-resume`: what a program forgets to protect is found, and named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from stage.local import PATIENCE_S, RELIGHT

PROGRAM = """\
import os, random, time
from pathlib import Path
import numpy as np
import relight

saves = Path(os.environ["RELIGHT_CHECKPOINT_DIR"])

random.seed(1)
run = relight.join(rng={rng})
field, forgotten = np.zeros(30_000), np.zeros(1)
run.protect(field=field, total=0.0)
for step in run.steps({steps}):
    forgotten += 1
    field[step] = {value}
    run.values["total"] += random.random()
    # It is over once it was saved, and not before it was told to restart.
    if not any(saves.glob("0*/MANIFEST.json")):
        time.sleep(0.5 if step > 20 else 0.03)
"""


def verify_resume(tmp_path: Path, **program: object) -> tuple[int, str]:
    """Its exit code, and what it printed or complained of."""
    path, spec = tmp_path / "train.py", tmp_path / "job.yaml"
    path.write_text(
        PROGRAM.format(**{"rng": True, "steps": 120, "value": "random.random()", **program})
    )
    spec.write_text(
        f"name: t\ncommand: [{sys.executable}, {path}]\nhealth: {{preflight: off}}\n"
        f"checkpoint: {{interval: 1h, directory: {tmp_path / 'mine'}}}\n"
        f"notify: {{command: [touch, {tmp_path / 'told'}]}}\n"
    )
    done = subprocess.run(
        [RELIGHT, "verify-resume", str(spec), "--at", "20", "--json"],
        env=os.environ | {"RELIGHT_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert not (tmp_path / "mine").exists()
    assert not (tmp_path / "told").exists(), "a trial is of interest to nobody else"
    return done.returncode, done.stdout or done.stderr


def test_a_program_that_protects_all_comes_back_the_same(tmp_path: Path) -> None:
    code, text = verify_resume(tmp_path)
    found = json.loads(text)
    assert (code, found["same"], found["step"]) == (0, True, 120)
    (resumed,) = found["resumed"]
    assert 20 <= resumed < 120
    assert found["differed_before"] == ["rng/numpy/state/key"], "nobody has seeded or used it"
    assert list((tmp_path / "home" / "runs").iterdir()) == []


def test_what_was_forgotten_is_named_with_how_much_it_differs(tmp_path: Path) -> None:
    code, text = verify_resume(tmp_path, value="forgotten[0]", rng=False)
    found = json.loads(text)
    (resumed,) = found["resumed"]
    (array,) = found["arrays"]
    assert (code, found["same"], found["values"]) == (1, False, ["values/total"])
    assert (array["key"], array["elements"]) == ("objects/field", 120 - resumed)
    assert array["max_abs"] == resumed
    names = [path.name.rpartition("-")[0] for path in (tmp_path / "home" / "runs").iterdir()]
    assert names == ["verify-t", "verify-t"]


def test_a_job_that_is_too_short_proves_nothing(tmp_path: Path) -> None:
    code, text = verify_resume(tmp_path, steps=1)
    assert code == 2, "1 says that the results differ"
    assert "came to its end with step 1, so that it cannot be restarted at step 20" in text
    assert text.count("COMPLETED") == 1, "the second run would show nothing"

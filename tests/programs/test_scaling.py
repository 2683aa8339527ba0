"""The law of runs in folders: what is read of them, and the errors."""

import json
import shutil

import pytest

from bertjax.base.errors import InputError
from bertjax.lab.studies.files import read_study
from bertjax.lab.studies.scales import SCALES
from bertjax.programs import scaling
from tests.helpers.checkout import REPOSITORY

LADDER = REPOSITORY / "configs" / "studies" / "ladder.py"


@pytest.fixture
def run(tiny_run, tmp_path):
    """A finished run, with its loss on the same text."""
    folder = tmp_path / "one"
    shutil.copytree(tiny_run, folder, ignore=shutil.ignore_patterns("checkpoints", "tensorboard"))
    (folder / "masked_text.json").write_text(json.dumps({"step": 160, "mlm_loss": 1.25}))
    return folder


def test_what_a_run_used(run, tmp_path, capsys):
    """One layer of 32 has 4 matrices of 32 x 32 and two of 32 x 512."""
    output = tmp_path / "law.json"
    found = scaling.run(f"{tmp_path}/o*", "model.hidden_size", output=str(output))
    assert json.loads(output.read_text()) == found and found["lead"] is None
    assert (tmp_path / "law.png").read_bytes().startswith(b"\x89PNG")
    (used,) = found["kinds"]["32"]["runs"]
    assert used["loss"] == 1.25 and used["tokens"] == 120 * 16 * 32 + 40 * 8 * 64
    assert used["parameters"] == pytest.approx(4 * 32 * 32 + 2 * 32 * 512, rel=1e-6)
    assert used["flops"] > 6 * used["parameters"] * used["tokens"]
    printed = capsys.readouterr().out
    assert "32: 1 runs" in printed and "no law: 1 runs" in printed


def test_the_errors(run, tmp_path):
    def error(*arguments):
        with pytest.raises(InputError) as caught:
            scaling.run(*arguments)
        return str(caught.value)

    assert "no such folder" in error(f"{tmp_path}/two*")
    assert "--by=optimizer.speed" in error(str(run), "optimizer.speed")
    (run / "masked_text.json").write_text(json.dumps({"step": 150, "mlm_loss": 1.25}))
    assert "not of its last update" in error(str(run))
    (run / "masked_text.json").unlink()
    assert f"launch/evaluate.py --model={run} --same_text" in error(str(run))
    (tmp_path / "no.py").write_text("def get_config(): return 3\n")
    assert "no ConfigDict" in error(str(run), "", [f"{tmp_path}/no.py"])


def test_the_runs_of_the_ladder():
    """Runs of one budget and optimizer differ in the model alone; all names differ."""
    stages = [stage for stage in read_study(str(LADDER), SCALES["cpu"]).stages() if stage.config]
    assert len({stage.name for stage in stages}) == len(stages) == 24
    for stage in stages:
        width = stage.settings["model.hidden_size"]
        assert stage.settings["model.intermediate_size"] % 8 == 0
        assert width % stage.settings["model.num_attention_heads"] == 0

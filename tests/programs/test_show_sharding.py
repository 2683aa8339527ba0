"""The table of a model on eight devices, compared with values by hand and with real arrays."""

import contextlib
import io
import math
from typing import NamedTuple

import jax
import pytest

from bertjax.base.errors import InputError
from bertjax.programs import show_sharding
from configs import pretrain_base_16
from tests.helpers.slow_cases import others_slow
from tests.helpers.tiny_run import tiny_config

pytestmark = pytest.mark.devices(8)


class Shown(NamedTuple):
    layout: str
    rows: dict[str, show_sharding.ShardingRow]
    output: str


@pytest.fixture(scope="module", params=others_slow(["data", "zero1", "fsdp", "tensor"], "tensor"))
def base(request) -> Shown:
    """BERT-Base of the paper in each layout; products are split four ways, if at all."""
    config = pretrain_base_16.get_config()
    config.layout = request.param
    config.mesh.update(data=-1, model=4 if request.param == "tensor" else 1)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        rows = show_sharding.run(config)
    return Shown(request.param, {row.path: row for row in rows}, output.getvalue())


# mesh axes in use and stored, and the stored bytes of all twelve layers on one of eight devices
KERNEL = 12 * 768 * 3072 * 4
EXPECTED = {
    "data": ((None, None), (None, None), KERNEL),
    "zero1": ((None, None), (None, "data"), KERNEL // 8),
    "fsdp": (("data", None), ("data", None), KERNEL // 8),
    "tensor": ((None, "model"), (None, "model"), KERNEL // 4),
}


def test_a_row_of_each_layout(base):
    row = base.rows["bert/encoder/layer_*/intermediate/kernel"]
    assert (row.count, row.shape, row.logical) == (12, (768, 3072), ("embed", "mlp"))
    assert (row.mesh_axes, row.stored, row.device_bytes) == EXPECTED[base.layout]
    lines = base.output.splitlines()
    (line,) = [line for line in lines if line.startswith(f"{row.path} ") and "x12" in line]
    assert line.split()[1:5] == ["x12", "768", "x", "3,072"]
    assert line.endswith(f" {row.device_bytes:,}")


def test_the_table_is_whole(base):
    """It has all parameters of BERT-Base with its heads, including padding in the vocabulary."""
    elements = sum(row.count * math.prod(row.shape) for row in base.rows.values())
    encoder, pooler = 85_054_464, 768 * 768 + 768
    vocabulary = -(-30_522 // 128) * 128
    embeddings = (vocabulary + 512 + 2 + 2) * 768
    heads = 768 * 768 + 3 * 768 + vocabulary + 2 * 768 + 2
    assert elements == encoder + pooler + embeddings + heads
    here = sum(row.device_bytes for row in base.rows.values()) / 2**20
    whole = elements * 4 / 2**20
    assert f"parameters: {whole:,.1f} MiB, of which a device holds {here:,.1f}\n" in base.output


def test_pictures_name_every_device(base):
    pictures = base.output.split("\n\n")
    batch = next(text for text in pictures if text.lstrip().startswith("a batch: "))
    assert "a batch: batch 256 x length 128" in batch
    if base.layout == "tensor":
        assert "CPU 0,1,2,3" in batch and "CPU 4,5,6,7" in batch
    else:
        assert all(f"CPU {device}" in batch for device in range(8))
    drawn = [text for text in pictures if "bert/" in text and "┌" in text]
    assert len(drawn) == {"data": 0, "zero1": 0, "fsdp": 2, "tensor": 2}[base.layout]


def test_layers_in_one_array_are_one_row():
    config = pretrain_base_16.get_config()
    config.model.scan_layers = True
    kernels = [row for row in show_sharding.run(config) if row.path.endswith("intermediate/kernel")]
    (row,) = kernels
    assert (row.count, row.shape) == (1, (12, 768, 3072))
    assert row.device_bytes == KERNEL // 8  # layout zero1


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"layout": "diagonal"}, "layout='diagonal': must be one of"),
        ({"mesh": {"data": 3}}, "does not fit 8 devices"),
        ({"phase_1": {"batch_size": 12}}, "a batch of 12 sequences does not divide over 8"),
        ({"layout": "fsdp", "model": {"hidden_size": 36}}, "embed = 36 does not divide over"),
        ({"init_from": "hf:somewhere"}, "this program does not read weights"),
    ],
)
def test_bad_configs(changes, message, capsys):
    assert jax.device_count() == 8
    with pytest.raises(InputError, match=message):
        show_sharding.run(tiny_config("", **changes))
    assert capsys.readouterr().out == ""

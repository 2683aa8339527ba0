"""Folders of ELMo: written and read back, and what is refused."""

import json

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from bertjax.base.errors import InputError
from bertjax.inference.blanks import fill
from bertjax.interop.elmo import read_elmo, write_elmo
from bertjax.programs import convert
from bertjax.runs.fine_tuning.task_family import task_family_of
from bertjax.runs.source import open_model
from tests.helpers.small_elmo import small_elmo

pytestmark = pytest.mark.needs("h5py")


@pytest.fixture
def folder(tmp_path):
    write_elmo(small_elmo(), tmp_path)
    return tmp_path


def _change(folder, **changes):
    path = folder / "options.json"
    options = json.loads(path.read_text())
    for name, value in changes.items():
        section, _, key = name.partition("__")
        options[section][key] = value
    path.write_text(json.dumps(options))


@pytest.mark.parametrize("changes", [{}, dict(cell_size=7, skip_connections=False, cell_clip=0.0)])
def test_written_and_read_back_bit_for_bit(changes, tmp_path):
    model = small_elmo(**changes)
    write_elmo(model, tmp_path)
    again = read_elmo(tmp_path, "again")
    assert again.spec == model.spec
    result, reference = (flatten_dict(m.params) for m in (model, again))
    assert result.keys() == reference.keys()
    assert all(result[name].tobytes() == reference[name].tobytes() for name in result)
    assert again.identity == model.identity


def test_names_and_shapes_are_those_of_bilm_tf(folder, shared_data):
    import h5py

    def names(file):
        found = []
        with h5py.File(file) as arrays:
            arrays.visititems(lambda name, item: found.append((name, getattr(item, "ndim", 0))))
        return {each for each in found if each[1]}

    reference = names(shared_data / "elmo" / "lm_weights.hdf5")
    result = names(folder / "weights.hdf5")
    assert result - reference == {  # a third layer
        (f"RNN_{way}/RNN/MultiRNNCell/Cell2/LSTMCell/{name}", ndim)
        for way in (0, 1)
        for name, ndim in (("W_0", 2), ("B", 1), ("W_P_0", 2))
    }


def test_a_released_folder_is_exported_as_it_was(shared_data, tmp_path):
    import h5py

    source = shared_data / "elmo"
    found = convert.run(f"elmo:{source}", f"elmo:{tmp_path / 'out'}")
    assert found == {"read back": 0.0}
    with (
        h5py.File(source / "lm_weights.hdf5") as before,
        h5py.File(tmp_path / "out" / "weights.hdf5") as after,
    ):

        def same(name, item):
            if isinstance(item, h5py.Dataset):
                np.testing.assert_array_equal(item, after[name])

        before.visititems(same)
    options = json.loads((tmp_path / "out" / "options.json").read_text())
    reference = json.loads((source / "options.json").read_text())
    assert options["char_cnn"] == reference["char_cnn"] and options["lstm"] == reference["lstm"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(lstm__dim=12), r"W_0 has the shape \[14, 44\], and should have \[14, 48\]"),
        (dict(lstm__n_layers=4), "Cell3/LSTMCell/W_0 is missing"),
        (dict(char_cnn__max_characters_per_token=40), "max_characters_per_token=40: only 50"),
        (dict(char_cnn__n_characters=300), "n_characters=300: only 262 can be read"),
        (dict(char_cnn__activation="selu"), "hidden_act='selu'"),
        (dict(lstm__dim="wide"), "damaged"),
    ],
)
def test_options_that_do_not_fit(folder, changes, message):
    _change(folder, **changes)
    with pytest.raises(InputError, match=message):
        open_model(f"elmo:{folder}")


def test_files_that_are_missing_or_damaged(folder, tmp_path):
    (folder / "other_weights.hdf5").write_bytes(b"")
    with pytest.raises(InputError, match="there is other_weights.hdf5, weights.hdf5"):
        open_model(f"elmo:{folder}")
    (folder / "weights.hdf5").unlink()
    with pytest.raises(InputError, match=r"other_weights.hdf5: damaged"):
        open_model(f"elmo:{folder}")
    (folder / "options.json").unlink()
    with pytest.raises(InputError, match=r"one file \*options.json \(there is none\)"):
        open_model(f"elmo:{folder}")


def test_programs_that_need_pieces_refuse_it():
    model = small_elmo()
    with pytest.raises(InputError, match="small: .*elmo has no model of the kind masked_lm"):
        fill(model, ["a [MASK]"], top=1)
    with pytest.raises(InputError, match="small: elmo reads the characters of words, and pieces"):
        model.check_reads_pieces()
    with pytest.raises(InputError, match="elmo for encoder has no head of a task"):
        task_family_of(model)


def test_other_targets_are_refused(folder, make_pretrained, tmp_path):
    with pytest.raises(
        InputError, match="transformers has no such model.*an ELMo with --to=elmo:FOLDER"
    ):
        convert.run(f"elmo:{folder}", f"hf:{tmp_path / 'hf'}")
    with pytest.raises(InputError, match="reads the characters of words"):
        convert.run(f"elmo:{folder}", f"stablehlo:{tmp_path / 'served'}")
    with pytest.raises(InputError, match="only an ELMo has such files"):
        write_elmo(make_pretrained("BertModel"), tmp_path)

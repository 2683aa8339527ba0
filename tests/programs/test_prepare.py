"""Preparing a corpus, with the function of launch/prepare_corpus.py."""

import gzip
import json
import random
import shutil
import subprocess
import sys

import numpy as np
import pytest

from bertjax.base import progress
from bertjax.base.errors import InputError
from bertjax.base.files import exclusive
from bertjax.data.corpus.manifest import read_manifest
from bertjax.data.corpus.plan import make_plan
from bertjax.data.corpus.sampling import document_hash, is_held_out
from bertjax.data.corpus.shards import HELDOUT, SPLITS, store_directory
from bertjax.data.corpus.store import TokenStore
from bertjax.data.corpus.vocabulary_sample import spread_documents
from bertjax.programs import prepare
from bertjax.text.special_tokens import SPECIAL_TOKENS
from bertjax.text.template import Template
from bertjax.text.tokenizer import Tokenizer
from tests.text.test_extension import NEW, unigram


def made_up_documents(count):
    """Makes paragraphs of sentences with 300 words; every word is in many documents."""
    numbers = random.Random(0)
    syllables = ["ka", "lo", "Mi", "nu", "st", "ra", "pe", "tho", "42", "world", "in"]
    words = ["".join(numbers.choices(syllables, k=numbers.randint(1, 4))) for _ in range(300)]
    return [
        [
            " ".join(numbers.choices(words, k=numbers.randint(4, 15))) + "."
            for _ in range(numbers.randint(2, 6))
        ]
        for _ in range(count)
    ]


DOCUMENTS = made_up_documents(200)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in DOCUMENTS) + "\n")
    return f"text:{path}"


def run(text, output, **more):
    settings = dict(learn_vocabulary=150, held_out=0.1, workers=1) | more
    return prepare.run([text], output, **settings)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"cased": True},
        {"tokenizer": "sentencepiece"},
        {"tokenizer": "sentencepiece", "model_type": "bpe", "cased": True},
        {"tokenizer": "xlnet"},
        {"tokenizer": "bpe", "learn_vocabulary": 300},
        {"tokenizer": "bpe", "learn_vocabulary": 300, "cased": False},
    ],
)
def test_learned_vocabulary_and_store(tmp_path, text, more):
    output = tmp_path / "corpus"
    report = run(text, output, verify=True, **more)
    tokenizer = Tokenizer.open(output)
    asked = more.get("tokenizer", "wordpiece")
    assert tokenizer.kind == {"xlnet": "sentencepiece"}.get(asked, asked)
    assert tokenizer.cased == more.get("cased", asked in ("bpe", "xlnet"))
    cls_last = Template.xlnet(tokenizer.roles)
    assert (tokenizer.template == cls_last) == (asked == "xlnet")
    size = more.get("learn_vocabulary", 150)
    assert tokenizer.vocabulary_size == report["tokenizer"]["vocabulary_size"] == size

    held_out = [d for d in DOCUMENTS if is_held_out(document_hash(d), 0.1)]
    assert report["heldout"]["documents"] == len(held_out)
    assert report["train"]["documents"] == len(DOCUMENTS) - len(held_out)
    for split in SPLITS:
        store = TokenStore.open(output, split, tokenizer_identity=tokenizer.identity)
        counts = report[split]
        assert counts["tokens"] == store.token_count
        assert counts["tokens_per_word"] == counts["tokens"] / counts["words"] > 1
        assert counts["unknown_rate"] == 0
    words = sum(len(paragraph.split()) for document in held_out for paragraph in document)
    assert report["heldout"]["words"] == words
    assert report["sources"][0]["train"] == report["train"]
    assert report == json.loads((output / "report.json").read_bytes())
    store = TokenStore.open(output, HELDOUT)
    first = store.read_spans(store.document_starts[:1], store.document_starts[1:2])
    expected = " ".join(held_out[0])
    if not tokenizer.cased:
        expected = expected.lower()
    if tokenizer.keeps_spaces:
        assert tokenizer.decode(first) == expected.replace(". ", ".\n")
    else:
        assert tokenizer.decode(first).replace(" ", "") == expected.replace(" ", "")


def test_a_vocabulary_of_words(tmp_path, text):
    """Of all words of the text, or of the most frequent ones."""
    report = run(text, tmp_path / "all", tokenizer="words", learn_vocabulary=100_000)
    tokenizer = Tokenizer.open(tmp_path / "all")
    assert (tokenizer.kind, tokenizer.cased) == ("words", True)
    assert report["train"]["unknown_rate"] == 0
    some = run(text, tmp_path / "some", tokenizer="words", learn_vocabulary=150)
    assert Tokenizer.open(tmp_path / "some").tokens == tokenizer.tokens[:150]
    assert some["train"]["unknown_rate"] > 0
    assert some["train"]["tokens"] == report["train"]["tokens"]


def test_held_out_text_teaches_no_vocabulary(tmp_path):
    strange = [[f"q{n} qqq."] for n in range(10)]
    strange = [document for document in strange if is_held_out(document_hash(document), 0.7)]
    assert strange
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in DOCUMENTS + strange))
    report = run(f"text:{path}", tmp_path / "corpus", held_out=0.7)
    assert not any("q" in token for token in Tokenizer.open(tmp_path / "corpus").tokens)
    assert report["train"]["unknown_rate"] == 0
    store = TokenStore.open(tmp_path / "corpus", HELDOUT)
    unknown = Tokenizer.open(tmp_path / "corpus").unk_id
    ids = store.read_spans(np.array([0]), np.array([store.token_count]))
    assert report["heldout"]["unknown_rate"] == pytest.approx((ids == unknown).mean())


def test_run_again_reuses_everything(tmp_path, text, capsys):
    output = tmp_path / "corpus"
    first = run(text, output)
    assert "there already" not in capsys.readouterr().out
    times = {path: path.stat().st_mtime_ns for path in output.glob("store/*.bin")}
    times[output / "vocab.txt"] = (output / "vocab.txt").stat().st_mtime_ns
    assert run(text, output) == first
    assert "vocabulary and token store are there already" in capsys.readouterr().out
    assert all(path.stat().st_mtime_ns == before for path, before in times.items())

    weighted = run(f"{text}@2", output)
    assert weighted["sources"][0]["weight"] == 2.0 and weighted["train"] == first["train"]


def test_an_interrupted_run_goes_on(tmp_path, text, monkeypatch):
    output = tmp_path / "corpus"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            prepare, "build_store", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt)
        )
        run(text, output)
    with pytest.raises(InputError, match="no token store"):
        TokenStore.open(output)
    vocabulary = (output / "vocab.txt").stat().st_mtime_ns
    report = run(text, output)
    assert (output / "vocab.txt").stat().st_mtime_ns == vocabulary
    whole = run(text, tmp_path / "other")
    assert {**report, "seconds": 0, "peak_worker_bytes": 0} == {
        **whole,
        "seconds": 0,
        "peak_worker_bytes": 0,
    }


def test_another_request_for_the_same_folder(tmp_path, text):
    output = tmp_path / "corpus"
    run(text, output)
    for more, message in (
        ({"held_out": 0.2}, "held_out was 0.1, now 0.2"),
        ({"learn_vocabulary": 130}, "vocabulary was .*150.*, now .*130"),
        ({"cased": True}, "vocabulary was .*'cased': False.* now .*'cased': True"),
        ({"language": "de"}, "language was 'en', now 'de'"),
        ({"nulls": "skip"}, "nulls was 'error', now 'skip'"),
    ):
        with pytest.raises(InputError, match=rf"with other settings \({message}"):
            run(text, output, **more)
    with pytest.raises(InputError, match="source was .* now .'installed-docs'"):
        run("installed-docs", output)
    assert not (output / "installed-docs.txt").exists()
    plan = output / "plan.json"
    asked = json.loads(plan.read_text())
    for name in ("nulls", "filters"):  # as a version that did not know them wrote it
        del asked[name]
        plan.write_text(json.dumps(asked))
        run(text, output)
        plan.write_text(json.dumps(asked))
    path = tmp_path / "text.txt"
    path.write_text(path.read_text() + "\nMore.\n")
    with pytest.raises(InputError, match="the source files have changed since, in number"):
        run(text, output)


def test_a_given_vocabulary(tmp_path, text):
    vocabulary = tmp_path / "given.txt"
    pieces = [*SPECIAL_TOKENS, *"abcdehiklmnoprstuw24.", *(f"##{c}" for c in "abdehiklmnoprstuw24")]
    vocabulary.write_text("\n".join(pieces) + "\n")
    report = run(text, tmp_path / "corpus", learn_vocabulary=None, vocabulary=vocabulary)
    assert report["tokenizer"]["vocabulary_size"] == len(pieces)
    assert report["tokenizer"]["identity"] == Tokenizer.open(vocabulary).identity
    assert (tmp_path / "corpus/vocab.txt").read_bytes() == vocabulary.read_bytes()
    assert report["train"]["unknown_rate"] == 0 and report["train"]["tokens_per_word"] > 3


def test_a_given_byte_level_bpe(tmp_path, text, capsys):
    run(text, tmp_path / "one", tokenizer="bpe", learn_vocabulary=300)
    taken = tmp_path / "tokenizer.json"
    content = json.loads((tmp_path / "one/bpe.json").read_bytes())
    taken.write_text(json.dumps(content | {"post_processor": None}, indent=2))
    options = dict(learn_vocabulary=None, vocabulary=taken)
    report = run(text, tmp_path / "two", **options)
    assert report["tokenizer"] == {
        "kind": "bpe",
        "cased": True,
        "vocabulary_size": 300,
        "identity": Tokenizer.open(tmp_path / "one").identity,
    }
    identities = {read_manifest(tmp_path / name)["identity"] for name in ("one", "two")}
    assert len(identities) == 1
    assert "300 bpe pieces, cased" in capsys.readouterr().out
    run(text, tmp_path / "two", **options)
    assert "vocabulary and token store are there already" in capsys.readouterr().out
    # What is left where learning was interrupted is no description.
    (tmp_path / "one/vocabulary.json").unlink()
    run(text, tmp_path / "one", tokenizer="bpe", learn_vocabulary=300)
    assert len(identities | {read_manifest(tmp_path / "one")["identity"]}) == 1
    with pytest.raises(InputError, match="is a bpe one, not --tokenizer=wordpiece"):
        run(text, tmp_path / "three", tokenizer="wordpiece", **options)
    with pytest.raises(InputError, match="says cased=True, asked for False"):
        run(text, tmp_path / "three", cased=False, **options)
    with pytest.raises(InputError, match="is a bpe one, and only a wordpiece one has"):
        run(text, tmp_path / "three", domain_words=3, **options)


def test_a_small_text_gives_a_smaller_vocabulary(tmp_path, text, capsys):
    report = run(text, tmp_path / "corpus", learn_vocabulary=30_000)
    size = report["tokenizer"]["vocabulary_size"]
    assert 50 < size < 1000
    assert f"has only {size} pieces to learn, not 30000" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more, message",
    [
        ({"learn_vocabulary": None}, "give one of --learn_vocabulary=SIZE and --vocabulary=FILE"),
        ({"vocabulary": "vocab.txt"}, "give one of --learn_vocabulary=SIZE and --vocabulary=FILE"),
        (
            {"learn_vocabulary": None, "vocabulary": "nowhere.txt"},
            "nowhere.txt: no such vocabulary",
        ),
        ({"learn_vocabulary": 5}, "--learn_vocabulary=5: too few pieces"),
        (
            {"tokenizer": "bpe", "learn_vocabulary": 260},
            "--learn_vocabulary=260: too few pieces: 256 bytes and the special tokens make 261",
        ),
        ({"tokenizer": "bytes"}, "--tokenizer=bytes: must be one of wordpiece, sentencepiece"),
        ({"model_type": "word"}, "--model_type=word: must be one of unigram, bpe"),
        ({"undecodable": "drop"}, "--undecodable=drop: must be one of error, skip"),
        ({"runner": "spark"}, "--runner=spark: must be one of local, beam"),
        ({"held_out": 1.0}, r"--held_out=1.0: must be in \[0, 1\)"),
        ({"held_out": float("nan")}, r"--held_out=nan: must be in \[0, 1\)"),
        ({"workers": 0}, "--workers=0: must be at least 1"),
        ({"workers": 10**9}, "--workers=10{9}: must be at most 10,000"),
        ({"learn_vocabulary": 10**20 - 1}, "--learn_vocabulary=9{20}: must be at most 10,000,000"),
        ({"beam_options": ["--a=b"]}, "--beam_option=--a=b: works only with --runner=beam"),
        ({"language": "English"}, "--language=English: there are no rules for it"),
    ],
)
def test_bad_arguments_leave_nothing(tmp_path, text, more, message):
    with pytest.raises(InputError, match=message):
        run(text, tmp_path / "corpus", **more)
    assert not (tmp_path / "corpus").exists()


def test_bad_sources_leave_nothing(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        run(f"text:{tmp_path}/nowhere/*.txt", tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


def test_output_and_kind_in_the_way(tmp_path, text):
    with pytest.raises(InputError, match="a file is in the way"):
        run(text, tmp_path / "text.txt")
    message = r"holds something else than a corpus \(a folder, text.txt\): name a new folder"
    (tmp_path / "a folder").mkdir()
    for name in (".lock", "installed-docs.txt"):  # a command that was stopped early leaves these
        (tmp_path / name).touch()
        with pytest.raises(InputError, match=message):
            run(text, tmp_path)
        shutil.move(tmp_path / name, tmp_path / "a folder")
    vocabulary = tmp_path / "given.txt"
    vocabulary.write_text("\n".join(SPECIAL_TOKENS))
    options = dict(learn_vocabulary=None, vocabulary=vocabulary, tokenizer="sentencepiece")
    with pytest.raises(InputError, match="is a wordpiece one, not --tokenizer=sentencepiece"):
        run(text, tmp_path / "corpus", **options)


def test_text_without_a_held_out_document(tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("\n".join(line for document in DOCUMENTS for line in document))
    message = r"no held-out document: .*of 1 documents.*a blank line ends .* write lines:GLOB"
    with pytest.raises(InputError, match=message):
        run(f"text:{path}", tmp_path / "corpus", held_out=1e-6)
    assert not (tmp_path / "corpus").exists()  # it is noticed before a vocabulary is learned
    same = tmp_path / "same.txt"
    same.write_text("The same text.\n\n" * 23)
    for held_out, split in ((1e-6, "held-out"), (1 - 1e-9, "training")):
        message = f"no {split} document: all 23 documents are equal, .*: give other text"
        with pytest.raises(InputError, match=message):
            run(f"text:{same}", tmp_path / "corpus", held_out=held_out)
    report = run(f"lines:{path}", tmp_path / "corpus")
    lines = sum(map(len, DOCUMENTS))
    assert report["train"]["documents"] + report["heldout"]["documents"] == lines
    assert report["heldout"]["documents"] > 0
    assert run(f"text:{path}", tmp_path / "other", held_out=0.0)["heldout"]["tokens"] == 0


def test_an_unfinished_folder_gives_way_to_another_request(tmp_path, text, monkeypatch, capsys):
    output = tmp_path / "corpus"
    with monkeypatch.context() as patched:
        patched.setattr(prepare, "build_store", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run(text, output)
    learned = (output / "vocab.txt").read_text()
    shutil.copytree(output, tmp_path / "kept")
    kept = tmp_path / "kept/vocab.txt"  # a vocabulary that was learned there may be asked for
    run(text, kept.parent, learn_vocabulary=None, vocabulary=kept)
    assert kept.read_text() == learned
    report = run(text, output, learn_vocabulary=130, held_out=0.2)
    assert "removing the unfinished corpus of another request" in capsys.readouterr().out
    assert report["tokenizer"]["vocabulary_size"] == 130 < len(learned.splitlines())
    assert report == {
        **run(text, tmp_path / "b", learn_vocabulary=130, held_out=0.2),
        "seconds": report["seconds"],
        "peak_worker_bytes": report["peak_worker_bytes"],
    }
    with pytest.raises(InputError, match="holds a corpus with other settings"):
        run(text, output)


def test_lost_accents_are_told(tmp_path, capsys):
    """ọ̀ and ṣ lose their marks in an uncased vocabulary; one word of ten here."""
    path = tmp_path / "yo.txt"
    path.write_text("\n\n".join(f"ọ̀ ka lo mi {n} to be we so da." for n in range(60)))
    warning = (
        "warning: uncased: 10.0% of the words lose accents, tone marks or vowel signs: --cased"
    )
    for cased, told in ((False, True), (True, False)):
        run(f"text:{path}", tmp_path / f"{cased}", cased=cased, learn_vocabulary=60)
        assert (warning in capsys.readouterr().out) == told
    path.write_text("\n\n".join(f"é {'ka ' * 60}{n}." for n in range(60)))  # 1.6 %
    run(f"text:{path}", tmp_path / "few", learn_vocabulary=60)
    assert "warning: uncased" not in capsys.readouterr().out


def test_sources_with_too_few_documents_are_named(tmp_path, text, capsys):
    documents = [[f"{n} ka lo."] for n in range(99)]
    lone = next(d for d in documents if is_held_out(document_hash(d), 0.1))
    taught = next(d for d in documents if not is_held_out(document_hash(d), 0.1))
    path = tmp_path / "few.txt"
    path.write_text("\n\n".join(["\n".join(lone), "\n".join(taught)]))
    settings = dict(learn_vocabulary=150, workers=1)
    few = f"text:{path}"
    prepare.run([text, few], tmp_path / "a", held_out=0.1, **settings)
    warnings = [line.strip() for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert warnings == [
        f"warning: source {few}: 1 training document: next-sentence training needs 2: "
        "give it more text",
        f"warning: source {few}: 1 held-out document: next-sentence evaluation needs 2: "
        "use a larger --held_out",
    ]
    path.write_text("\n".join(taught))
    prepare.run([text, few], tmp_path / "b", held_out=0.1, **settings)
    assert f"source {few}: 0 held-out documents: evaluation goes without it" in (
        capsys.readouterr().out
    )
    prepare.run([text], tmp_path / "c", held_out=0.0, **settings)
    assert "warning" not in capsys.readouterr().out


@pytest.mark.parametrize("damage", ["", "null", "[]", "{}", "[" * 100_000, None])
@pytest.mark.parametrize(
    "file, hint",
    [
        ("report.json", "remove it: the same command writes it again"),
        ("plan.json", "delete the folder, or choose another --output"),
        ("vocabulary.json", "name the vocabulary file itself"),
        ("store/shard-00000.json", "remove it: the same command makes the shard again"),
    ],
)
def test_damaged_files_of_a_corpus(tiny_corpus, tmp_path, file, hint, damage):
    output, path = tmp_path / "corpus", tmp_path / "corpus" / file
    shutil.copytree(tiny_corpus, output)
    if damage is None:  # fields of another type
        damage = json.dumps(dict.fromkeys(json.loads(path.read_text()), None))
        if file == "plan.json":
            hint = "choose another --output, or delete that folder"
    path.write_text(damage)
    source = f"text:{tiny_corpus.parent / 'text.txt'}"
    with pytest.raises(InputError, match=hint):
        prepare.run([source], output, learn_vocabulary=300, held_out=0.1, workers=1)
    assert path.read_text() == damage


def test_two_runs_on_one_folder(tmp_path, text):
    output = tmp_path / "corpus"
    with exclusive(output), pytest.raises(InputError, match="corpus: in use by another process"):
        run(text, output)
    assert [path.name for path in output.iterdir()] == [".lock"]
    assert run(text, output)["train"]["documents"] > 100


def test_a_compressed_sample_ends_at_its_bytes(tmp_path, monkeypatch, capsys):
    """The limit counts bytes of text, not of the file, and every file contributes."""
    for name in "ab":
        with gzip.open(tmp_path / f"{name}.txt.gz", "wt") as file:
            file.writelines(f"{name} {n:06d} é\n\n" for n in range(20_000))
    specs = [(f"text:{tmp_path}/{name}.txt.gz", None) for name in "ab"]
    plan = make_plan(specs, installed_docs="unused")
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    texts = [document[0] for document in spread_documents(plan, 100_000)]
    # Progress is shown within a shard, too: one may have millions of documents.
    assert capsys.readouterr().err.count("reading a sample") > len(texts)
    sizes = [sum(len(t.encode()) for t in texts if t[0] == name) for name in "ab"]
    assert sum(sizes) == pytest.approx(100_000, abs=50)
    assert sizes[0] == pytest.approx(sizes[1], rel=0.1)
    everything = list(spread_documents(plan, 1 << 30))
    assert len(everything) == 40_000


def test_a_unigram_vocabulary_is_extended(tmp_path):
    """Its old pieces keep their ids, and the words of the text become pieces."""
    old = unigram(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(f"{' '.join(NEW)} {n}" for n in range(20)))
    report = prepare.run(
        [f"text:{tmp_path}/text.txt"],
        tmp_path / "corpus",
        vocabulary=tmp_path / "tokenizer.json",
        extend_vocabulary=5,
        held_out=0.2,
        workers=1,
    )
    new = Tokenizer.open(tmp_path / "corpus")
    assert new.tokens[: old.vocabulary_size] == old.tokens
    assert len(report["new_pieces"]["pieces"]) == new.vocabulary_size - old.vocabulary_size > 0


@pytest.mark.slow
def test_the_door(tmp_path, text, repository):
    program = [sys.executable, repository / "launch/prepare_corpus.py", "--held_out=0.1"]
    arguments = [f"--source={text}", f"--output={tmp_path}/corpus", "--learn_vocabulary=100"]
    settings = dict(capture_output=True, text=True, env={"PYTHONPATH": str(repository)})
    done = subprocess.run([*program, *arguments], **settings)
    assert done.returncode == 0, done.stderr
    assert "100 wordpiece pieces, uncased" in done.stdout and "heldout:" in done.stdout
    assert TokenStore.open(tmp_path / "corpus").token_count > 1000

    path = tmp_path / "text.txt"
    path.write_bytes(path.read_bytes() + b"\n\xff\n")
    done = subprocess.run(
        [*program, arguments[0], f"--output={tmp_path}/bad", arguments[2]], **settings
    )
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "text.txt: not UTF-8 at byte" in line and "Traceback" not in done.stderr
    assert not store_directory(tmp_path / "bad").exists()


def test_missing_blank_lines_are_told_before_the_vocabulary(tmp_path, capsys):
    path, lines = tmp_path / "lines.txt", [f"Line {n} is a text." for n in range(3_000)]
    path.write_text("\n".join(lines) + "\n\nAnother document.\n")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prepare.vocabularies, "make", lambda *_: 1 / 0)
        for kind, told in (("text", True), ("lines", False)):
            with pytest.raises(ZeroDivisionError):
                run(f"{kind}:{path}", tmp_path / kind, held_out=0.0)
            warning = "its first document has 3,000 lines, because no blank line ends it. If each "
            said = capsys.readouterr().out
            assert (warning in said) == told and (f"write lines:{path};" in said) == told


def test_filters_work_before_everything_else(tmp_path, capsys, monkeypatch):
    """Train and held-out documents are filtered together, also for the vocabulary."""
    task = tmp_path / "task" / "dev.tsv"
    task.parent.mkdir()
    planted = DOCUMENTS[7]
    task.write_text("id\ttext\n3\t" + " ".join(planted) + "\n")
    once = [" ".join(["Onlyhere"] * 9)]
    copies = [*DOCUMENTS[:50], *DOCUMENTS[20:180], once, once]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join("\n".join(document) for document in copies) + "\n")
    more = dict(deduplicate="exact", decontaminate=[f"{task.parent}/*.tsv"])
    output = tmp_path / "corpus"
    with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
        patched.setattr(prepare, "build_store", lambda *_, **__: 1 / 0)
        run(f"text:{path}", output)  # without filters: it gives way
    report = run(f"text:{path}", output, **more)
    printed = capsys.readouterr().out
    assert "removing the unfinished corpus of another request" in printed
    assert "  removed by tasks: 1 documents (0.47%), " in printed
    assert "  removed by duplicates: 31 documents (14.62%), " in printed
    expected = [*(each for each in DOCUMENTS[:180] if each != planted), once]
    held_out = [each for each in expected if is_held_out(document_hash(each), 0.1)]
    assert report["heldout"]["documents"] == len(held_out)
    assert report["train"]["documents"] == len(expected) - len(held_out)
    assert report["cleaning"]["documents"] == len(copies)

    clean = tmp_path / "clean.txt"
    clean.write_text("\n\n".join("\n".join(document) for document in expected) + "\n")
    run(f"text:{clean}", tmp_path / "other")
    for name in ("vocab.txt", "store/train-00000.tokens.bin", "store/heldout-00000.tokens.bin"):
        assert (output / name).read_bytes() == (tmp_path / "other" / name).read_bytes()

    assert run(f"text:{path}", output, **more) == report
    assert "are there already" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"filters was .*'exact'.*, now .*None"):
        run(f"text:{path}", output)
    plan = json.loads((tmp_path / "other" / "plan.json").read_text())
    del plan["filters"]  # as in a corpus from before there were filters
    (tmp_path / "other" / "plan.json").write_text(json.dumps(plan))
    assert "cleaning" not in run(f"text:{clean}", tmp_path / "other")
    task.write_text(task.read_text() + "4\tmore\n")
    with pytest.raises(InputError, match="the source files have changed .*or those of the tasks"):
        run(f"text:{path}", output, **more)

"""The hash that splits and samples documents."""

import hashlib

from bertjax.data.corpus.sampling import document_hash, is_held_out, sample_documents

DOCUMENTS = [[f"Document {n}.", "x" * (n % 50)] for n in range(20_000)]


def test_the_hash_is_the_one_that_is_documented():
    expected = hashlib.blake2b("One.\nTwo é.".encode()).hexdigest()[:16]
    assert document_hash(["One.", "Two é."]) == int(expected, 16)


def test_held_out_fraction():
    count = sum(is_held_out(document_hash(document), 0.05) for document in DOCUMENTS)
    assert abs(count - 1000) < 4 * (20_000 * 0.05 * 0.95) ** 0.5
    assert not any(is_held_out(document_hash(document), 0.0) for document in DOCUMENTS[:100])


def test_held_out_documents_stay_so_when_the_fraction_grows():
    numbers = [document_hash(document) for document in DOCUMENTS]
    small, large = ({n for n in numbers if is_held_out(n, f)} for f in (0.01, 0.02))
    assert small < large


def test_sample_is_the_documents_of_smallest_hash_in_any_order():
    size = 50_000
    sample = sample_documents(DOCUMENTS, held_out=0.05, max_bytes=size)
    assert sample == sample_documents([*DOCUMENTS[::-1], None, []], held_out=0.05, max_bytes=size)
    eligible = sorted((document_hash(d), "\n".join(d)) for d in DOCUMENTS)
    eligible = [text for number, text in eligible if not is_held_out(number, 0.05)]
    assert sample == eligible[: len(sample)]
    total = sum(len(text.encode()) for text in sample)
    assert size - 100 < total <= size


def test_a_small_corpus_is_taken_whole():
    texts = {"\n".join(document) for document in DOCUMENTS[:100]}
    assert set(sample_documents(DOCUMENTS[:100], held_out=0.0, max_bytes=1 << 20)) == texts

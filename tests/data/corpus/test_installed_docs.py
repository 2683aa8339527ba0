"""Documentation of the installation as text."""

import ast

from bertjax.data.corpus import installed_docs as module
from bertjax.data.corpus.installed_docs import write_installed_docs

SOURCE = '''
"""Module text with more than eight words in this one sentence."""

class Thing:
    """First paragraph of the class, wrapped over
    two lines, naming :class:`~a.b.Thing` and ``code``.

    >>> Thing()
    <Thing>

    Example of a literal block that is code and not prose::

        dropped = this_line()

        dropped += this_line_too()

    Parameters
    ----------
    size : int
        How large the thing is going to be in the end.
    name : str
        What it is called by.

    +-----+-----+
    | one | two |
    +-----+-----+

    * an item of a list that
      goes on here
    * another item of the list
    """

    if True:
        def method(self):
            """Too short to keep."""

        async def other(self):
            "The text of an asynchronous function is taken like any other text here."

def text():
    """Module text with more than eight words in this one sentence."""
'''


def test_prose_of_docstrings(tmp_path):
    path = tmp_path / "thing.py"
    path.write_text(SOURCE)
    documents = module._documents_of_file(path)
    sentence = "Module text with more than eight words in this one sentence."
    assert [document.split("\n") for document in documents] == [
        [sentence],
        [
            "First paragraph of the class, wrapped over two lines, naming a.b.Thing and code.",
            "Example of a literal block that is code and not prose:",
            "size : int How large the thing is going to be in the end.",
            "name : str What it is called by.",
            "an item of a list that goes on here",
            "another item of the list",
        ],
        ["The text of an asynchronous function is taken like any other text here."],
        [sentence],
    ]


def test_prose_is_letters_but_for_a_seventh():
    assert module._is_prose("four words stand and 12")  # 21 of 23 characters, with the spaces
    assert not module._is_prose("four words and 123")  # 15 of 18
    assert not module._is_prose("two words")


def test_files_that_are_not_python_3(tmp_path):
    path = tmp_path / "old.py"
    path.write_text('"""Old."""\nprint "hello"\n')
    assert module._documents_of_file(path) is None
    path.write_bytes(b'"""\xff"""\n')
    assert module._documents_of_file(path) is None
    path.write_text("print('no documentation')\n")
    assert module._documents_of_file(path) == []


def test_broken_links_are_skipped_and_counted(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.py").symlink_to(tmp_path / "gone.py")
    (tmp_path / "b.py").write_text(SOURCE)
    paths = dict.fromkeys(("stdlib", "purelib", "platlib"), str(tmp_path))
    monkeypatch.setattr(module.sysconfig, "get_paths", lambda: paths)
    write_installed_docs(tmp_path / "docs.txt", 1)
    assert (tmp_path / "docs.txt").read_text().count("\n\n") == 3
    assert "3 documents; skipped 1 files: unreadable" in capsys.readouterr().err


def test_topics_of_help():
    (path,) = [p for p in module._python_files() if p.parts[-2:] == ("pydoc_data", "topics.py")]
    topics = module._topics(ast.parse(path.read_bytes()))
    documents = module._documents_of_file(path)
    assert 0.9 * len(topics) < len(documents) <= len(topics)
    assert any("assert statement" in document.lower() for document in documents)


def test_the_text_is_the_same_every_time_and_without_repeats(tmp_path, monkeypatch):
    files = [p for p in module._python_files() if p.parent.name in ("json", "email", "asyncio")]
    assert len(files) > 40 and files == sorted(files, key=files.index)
    monkeypatch.setattr(module, "_python_files", lambda: files)
    texts = []
    for workers in (1, 2):
        write_installed_docs(tmp_path / "docs.txt", workers)
        texts.append((tmp_path / "docs.txt").read_bytes())
    assert texts[0] == texts[1]
    documents = texts[0].decode().removesuffix("\n\n").split("\n\n")
    assert len(set(documents)) == len(documents) > 300
    assert all(
        len(document.split()) >= 8 and document == document.strip() for document in documents
    )
    assert any("Deserialize" in document for document in documents)

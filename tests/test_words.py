"""Prose is plain English: no banned word, and no sentence that begins with `Who`, `What` or `Of`.

words_left.txt lists files that are not mended yet. Each rule is tried on bad samples too. The rules
themselves are in words.py.
"""

from functools import cache
from pathlib import Path

import pytest

import house
import words

# Pages without a sentence of more than 25 words. Add each page that reaches this.
SHORT = (
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "README.md",
    "RELEASE.md",
    "SECURITY.md",
    "benches/README.md",
    "docs/ARCHITECTURE.md",
    "docs/FORMAT.md",
    "docs/GUARANTEES.md",
    "docs/PROTOCOL.md",
    "docs/RELIABILITY.md",
    "docs/cli.md",
    "docs/concepts.md",
    "docs/cookbook.md",
    "docs/faq.md",
    "docs/index.md",
    "docs/support.md",
    "rust/log/README.md",
)
# The same, all at once: the guide, the Python package, and the source of the engine and bindings.
SHORT_FILES = (
    "docs/api/*.md",
    "docs/guide/*.md",
    "docs/quickstart/*.md",
    "docs/recipes/*.md",
    "python/falaj/**/*.py",
    "python/falaj/**/*.pyi",
    "rust/arrow/src/**/*.rs",
    "rust/log/src/**/*.rs",
    "rust/py/src/**/*.rs",
)
# Its only long sentence is a statement of SQL.
NO_PROSE = {"python/falaj/_outbox_table.py"}


@cache
def files() -> dict[str, str]:
    return words.held(house.tracked_files())


@cache
def complaints() -> dict[str, list[str]]:
    return {path: words.banned(path, text) for path, text in files().items()}


def said(path: str, text: str) -> list[str]:
    """Cut `path:line: "word"` out of each complaint."""
    return [complaint.split(": say")[0] for complaint in words.banned(path, text)]


# --- The tree ------------------------------------------------------------------------------------


def test_no_prose_has_a_banned_word() -> None:
    left = set(words.not_mended())
    mended = {path: found for path, found in complaints().items() if path not in left}
    assert len(mended) > 100
    assert [complaint for found in mended.values() for complaint in found] == []


def test_a_file_that_is_mended_is_off_the_list() -> None:
    listed = words.not_mended()
    assert [path for path in listed if path not in files()] == []
    assert [path for path in listed if not complaints()[path]] == []
    assert listed == sorted(set(listed))


@pytest.mark.parametrize("page", SHORT)
def test_a_short_page_has_no_sentence_of_more_than_25_words(page: str) -> None:
    assert words.long_sentences(page, files()[page]) == []


def test_the_guide_and_the_source_have_no_sentence_of_more_than_25_words() -> None:
    chosen = house.matching(files(), *SHORT_FILES)
    assert len(chosen) > 400
    assert [pattern for pattern in SHORT_FILES if not house.matching(chosen, pattern)] == []
    said = [words.long_sentences(path, chosen[path]) for path in sorted(chosen.keys() - NO_PROSE)]
    assert [complaint for complaints in said for complaint in complaints] == []


def test_an_entry_of_the_arguments_in_a_docstring_is_a_sentence_of_its_own() -> None:
    entries = "\n".join(f"        {name}: {'word ' * 14}" for name in ("start", "end", "size"))
    text = f'def call():\n    """Do it.\n\n    Args:\n{entries}\n    """\n'
    assert words.long_sentences("python/falaj/a.py", text) == []
    assert words.long_sentences("python/falaj/a.py", text.replace("        end: ", "        "))


def test_an_example_of_doctest_is_no_sentence() -> None:
    example = f">>> append({'word ' * 30})\n    {'word ' * 30}"
    text = f'def call():\n    """Do it.\n\n    {example}\n\n    Then stop.\n    """\n'
    notes = "".join(f"/// {line}\n" for line in example.split("\n")) + "fn call() {}\n"
    assert words.long_sentences("python/falaj/a.py", text) == []
    assert words.long_sentences("rust/py/src/a.rs", notes) == []
    assert words.long_sentences("python/falaj/a.py", text.replace(">>> ", ""))
    assert words.long_sentences("rust/py/src/a.rs", notes.replace(">>> ", ""))


def test_strings_of_rust_tests_are_not_what_users_read() -> None:
    text = f'const BYTES: &str = "{"word " * 30}";\n'
    for path in ("rust/log/src/a_tests.rs", "rust/log/src/log/tests/a.rs", "rust/log/src/tests.rs"):
        assert words.long_sentences(path, text) == []
    assert words.long_sentences("rust/log/src/a.rs", text)


# --- Bad samples ---------------------------------------------------------------------------------


@pytest.mark.parametrize("phrase", words.BANNED)
def test_each_banned_word_is_found_and_a_better_one_named(phrase: str) -> None:
    samples = {
        r"(?:let|lets|letting) go|goes of": "it lets go",
        r"(?:is|are|was|were|be) told(?! apart)": "it is told",
        r"(?:is|are|was|were|be) taken for": "it is taken for a record",
        r"(?:hand|hands|handed|handing) out": "it was handed out",
        r"(?:stand|stands|stood) behind": "it stands behind this",
        r"loss(?:es)? of power|power loss(?:es)?": "a loss of power",
        r"(?:un)?damag(?:e|es|ed|ing)": "Damage is found",
        r"hurts?|hurting": "a file is hurt",
        r"consumer names?|members? of a name": "a consumer name",
        r"latch(?:es|ed|ing)?": "the log is latched",
        r"rooms?": "a room",
        r"floors?": "the floor",
        r"proofs?": "a proof",
        r"(?:job|bulk load|load)(?:'s)? tokens?|tokens? of a (?:job|load)": "a job's token",
    }
    sample = samples.get(phrase, f"so {phrase} it is")
    (complaint,) = words.banned("a.md", f"# Title\n\n{sample}.\n")
    assert complaint.startswith('a.md:3: "')
    assert complaint.endswith(f"say {words.BANNED[phrase]}")


def test_a_phrase_that_a_line_cuts_in_two_is_found_where_it_begins() -> None:
    assert said("a.md", "one\n\nIt stays for\never.\n") == ['a.md:3: "for ever"']
    assert said("a.py", "x = 1\n# It is\n# told so.\n") == ['a.py:2: "is told"']
    assert said("a.rs", "/// It stays for\n/// ever.\nfn f() {}\n") == ['a.rs:1: "for ever"']


def test_markdown_is_read_without_its_code() -> None:
    code = "Call `nobody()`.\n\n```python\nnobody  # anew\n```\n\n"
    page = f"{code}| a | nobody |\n- anew [x](hurt.md)\n"
    assert said("a.md", page) == ['a.md:7: "nobody"', 'a.md:8: "anew"']
    assert said("a.md", "See `two\nlines` of nobody, and `x` anew.\n") == [
        'a.md:2: "anew"',
        'a.md:2: "nobody"',
    ]


def test_python_is_read_for_docstrings_comments_and_what_users_see() -> None:
    source = (
        '"""Say it anew."""\n\n\ndef f() -> None:\n    """Do it.\n\n    For nobody, see `hurt`.\n'
        '    """\n    nobody = "whoever reads this"  # hurt\n'
        '    raise Error(f"the {x} was told so")\n'
    )
    assert said("tests/a.py", source) == [
        'tests/a.py:1: "anew"',
        'tests/a.py:7: "nobody"',
        'tests/a.py:9: "hurt"',
    ]
    in_package = said("python/falaj/a.py", source)
    assert 'python/falaj/a.py:9: "whoever"' in in_package
    assert 'python/falaj/a.py:10: "was told"' in in_package


def test_rust_is_read_for_doc_comments_comments_and_what_users_see() -> None:
    source = (
        "//! Made anew.\n\n/// For nobody.\nfn hurt() {\n"
        '    let x = "whoever reads this"; // hurt\n}\n'
        '#[cfg(test)]\nmod tests {\n    const X: &str = "for nobody at all";\n}\n'
    )
    assert said("rust/log/src/a.rs", source) == [
        'rust/log/src/a.rs:1: "anew"',
        'rust/log/src/a.rs:3: "nobody"',
        'rust/log/src/a.rs:5: "hurt"',
        'rust/log/src/a.rs:5: "whoever"',
    ]
    assert len(said("rust/log/tests/a.rs", source)) == 3


@pytest.mark.parametrize("first", ["Who", "What", "Of"])
def test_a_sentence_that_begins_with_a_relative_clause_is_found(first: str) -> None:
    assert words.banned("a.md", f"All is well.\n{first} reads this, waits.\n")[0].startswith(
        "a.md:2"
    )
    assert words.banned("a.md", f"| {first} reads | x |\n")
    assert words.banned("a.md", f"# {first} reads\n")
    assert words.banned("a.rs", f"// {first} reads this, waits.\n")


def test_questions_and_words_within_others_are_no_fault() -> None:
    assert words.banned("a.md", "What is kept? Who reads it? It is what we read, of all.\n") == []
    assert (
        words.banned("a.md", "A mediums `medium`, latchkey, house.py, test_house and wherever.\n")
        == []
    )


def test_a_long_sentence_is_counted_with_code_as_one_word() -> None:
    long = " ".join(["word"] * 26)
    assert words.long_sentences("a.md", f"Short.\n\n{long}.\n")[0].startswith("a.md:3: 26 words")
    assert words.long_sentences("a.md", f"{long[5:]}.\n") == []
    assert words.long_sentences("a.md", f"{long[10:]} `a b c d`. New one.\n") == []


def test_the_list_can_only_lose_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "LEFT", tmp_path / "left.txt")
    words.LEFT.write_text(words.LEFT_HEAD + "a.md\nb.md\ngone.md\n")
    tree = {"a.md": "clean\n", "b.md": "nobody\n", "c.md": "nobody\n"}
    assert words.shrink(tree) == ["a.md", "gone.md"]
    assert words.not_mended() == ["b.md"]

"""The words of the project: which are banned, what to say instead, and where prose is found.

Owns the list of banned words and sentence shapes, and the readers of prose. Prose is: Markdown
without its blocks of code, docstrings and comments of Python and Rust, and strings that users read.
Code between backticks is not prose, and neither are the examples of doctest. `words_left.txt` names
the files that are not mended yet. It may only shrink: `python tests/words.py` removes each file
that has become clean. It also counts sentences of more than 25 words.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import house

LEFT = Path(__file__).with_name("words_left.txt")
LEFT_HEAD = "# Files that still have banned words, see words.py. Take files off; put none on.\n"
SENTENCE_WORDS_MAX = 25

# Each banned expression, and the better word.
BANNED: dict[str, str] = {
    r"nobody": "no process, no member: name the actor",
    r"whoever": "a process that, a caller that",
    r"anew": "again",
    r"for ever": "always, or until when",
    r"(?:let|lets|letting) go|goes of": "delete, expire, release",
    r"(?:is|are|was|were|be) told(?! apart)": "raises, returns, reports: say how",
    r"(?:is|are|was|were|be) taken for": "counts as, is treated as",
    r"(?:hand|hands|handed|handing) out": "deliver",
    r"(?:stand|stands|stood) behind": "follows, is the reason for",
    r"medium": "disk, stable storage",
    r"loss(?:es)? of power|power loss(?:es)?": "power failure",
    r"(?:un)?damag(?:e|es|ed|ing)": "corruption, corrupt",
    r"hurts?|hurting": "corrupt, harm",
    r"consumer names?|members? of a name": "consumer group, members of a group",
    r"latch(?:es|ed|ing)?": "failed-sync state",
    r"rooms?": "module; on a disk: space",
    r"floors?": "lower bound",
    r"proofs?": "reliability suite, test",
    r"house": "conventions",
    r"(?:job|bulk load|load)(?:'s)? tokens?|tokens? of a (?:job|load)": "idempotency key",
    r"job for bulk loads": "bulk load",
    r"of which": "two sentences",
}
_WORD = re.compile(
    rf"(?<![\w./-])(?:{'|'.join(BANNED)})(?![\w/-]|\.\w)".replace(" ", r"\s+"), re.IGNORECASE
)
_SENTENCE_END = re.compile(
    r"(?<=[.!?])[)\"'*_]*\s+(?=[\"'(*_\[]*(?:[A-Z`0-9§]|falaj\b))|\n\n+"
    r"|\n {4,}(?=\**\w+(?:, \w+)*: )"  # an entry of Args and the like in a docstring
)
# Each decision has a section `What would change our mind`: a question without its mark.
_BEGINS_WRONG = re.compile(r"[\s\"'(*_>\[]*(Who|What|Of)\b(?! would change our mind$)")


@dataclass(frozen=True)
class Prose:
    """A piece of text that people read, one line for each line of the file, and where it begins."""

    line: int
    text: str


# --- Where prose is ------------------------------------------------------------------------------


def prose(path: str, text: str) -> Iterator[Prose]:
    """Find the prose of a file by its kind."""
    if path.endswith(".md"):
        yield from markdown(text)
    elif path.endswith((".py", ".pyi")):
        yield from python(text, strings=path.startswith(house.PACKAGE))
    elif path.endswith(".rs"):
        ships = re.match(r"rust/(log|py|arrow)/src/(?!.*tests?(/|\.rs$))", path)
        yield from rust(text, strings=ships is not None)


def markdown(text: str, line: int = 1) -> Iterator[Prose]:
    """Yield paragraphs, headings, list items and table cells, without code."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2 *$", _blank, text, flags=re.M | re.S)
    text = re.sub(r"<!--.*?-->", _blank, text, flags=re.S)
    text = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", _code, text, flags=re.S)
    text = re.sub(r"\]\([^)]*\)", lambda m: "]" + "\n" * m[0].count("\n"), text)
    begin, paragraph = line, list[str]()
    for number, this in enumerate([*text.split("\n"), ""], line):
        row = this.lstrip().startswith("|")
        if row or not this.strip() or re.match(r"\s*(#+|[-*+]|\d+\.)\s", this):
            if paragraph:
                yield Prose(begin, "\n".join(paragraph))
            begin, paragraph = number, []
        if row:
            yield from (Prose(number, cell) for cell in this.strip().strip("|").split("|"))
        elif this.strip():
            paragraph.append(re.sub(r"^\s*(#+|[-*+]|\d+\.)\s+", "", this))
            if this.lstrip().startswith("#"):
                yield Prose(begin, "\n".join(paragraph))
                paragraph = []
        if not paragraph:
            begin = number + 1


def python(text: str, *, strings: bool) -> Iterator[Prose]:
    """Yield docstrings and comments; with `strings` also the text that a user may see."""
    tree = ast.parse(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = set[int]()
    for node in ast.walk(tree):
        if isinstance(node, documented):
            for statement in node.body:
                value = statement.value if isinstance(statement, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    docs.add(id(value))
                    yield from markdown(_without_examples(value.value), value.lineno)
    for node in ast.walk(tree) if strings else ():
        if not isinstance(node, ast.Constant) or id(node) in docs:
            continue
        if isinstance(node.value, str) and node.value.count(" ") > 1:
            yield Prose(node.lineno, _in_code(node.value))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    notes = [(t.start[0], t.string.lstrip("#:! ")) for t in tokens if t.type == tokenize.COMMENT]
    yield from _joined(notes)


def rust(text: str, *, strings: bool) -> Iterator[Prose]:
    """Yield comments, doc comments included; with `strings` also the strings of shipped code."""
    notes, literals = list[tuple[int, str]](), list[Prose]()
    ships = len(house.split_inline_tests(text)[0])
    line, at = 1, 0
    for match in house.RUST_TOKEN.finditer(text):
        line, at = line + text.count("\n", at, match.start()), match.start()
        if match[0].startswith("//"):
            notes.append((line, re.sub(r"^//[/!]?(?: |$)?", "", match[0])))
        elif match[0].startswith("/*"):
            yield from markdown(match[0].strip("/*"), line)
        elif strings and '"' in match[0] and match[0].count(" ") > 1 and match.start() < ships:
            literals.append(Prose(line, _in_code(match[0].strip('"'))))
    yield from _joined(notes)
    yield from literals


def _joined(notes: list[tuple[int, str]]) -> Iterator[Prose]:
    """Join comments on neighbouring lines into one text, and read it as Markdown."""
    for _, group in groupby(enumerate(notes), lambda item: item[1][0] - item[0]):
        lines = [note for _, note in group]
        text = _without_examples("\n".join(said for _, said in lines))
        yield from markdown(text, lines[0][0])


def _without_examples(text: str) -> str:
    """Take out the examples of doctest: from a prompt to the next empty line."""
    return re.sub(r"^ *>>> .*(?:\n.*\S.*)*", _blank, text, flags=re.M)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _code(match: re.Match[str]) -> str:
    return "`" + "\n" * match[0].count("\n") + "`"


def _in_code(text: str) -> str:
    return re.sub(r"`[^`]*`", _code, text)


# --- The rules ------------------------------------------------------------------------------------


def banned(path: str, text: str) -> list[str]:
    """Complain of each banned word, and of each sentence that begins with `Who`, `What` or `Of`."""
    said = list[tuple[int, str]]()
    for piece in prose(path, text):
        for match in _WORD.finditer(piece.text):
            word = " ".join(match[0].split())
            said.append((_line(piece, match.start()), f'"{word}": say {better(word)}'))
        for at, sentence in sentences(piece):
            if (wrong := _BEGINS_WRONG.match(sentence)) and "?" not in sentence:
                line = _line(piece, at + wrong.start(1))
                said.append((line, f'a sentence begins with "{wrong[1]}": name the actor first'))
    return [f"{path}:{line}: {what}" for line, what in sorted(said)]


def better(word: str) -> str:
    """Name the replacement of a banned word."""
    return next(say for ban, say in BANNED.items() if re.fullmatch(ban, word, re.IGNORECASE))


def long_sentences(path: str, text: str) -> list[str]:
    """List the sentences of more than 25 words; code between backticks is one word."""
    return [
        f"{path}:{_line(piece, at)}: {count} words: {' '.join(sentence.split())[:60]}…"
        for piece in prose(path, text)
        if not piece.text.startswith("Contents:")
        for at, sentence in sentences(piece)
        if (count := len(re.findall(r"[`\w][^\s]*", sentence))) > SENTENCE_WORDS_MAX
    ]


def sentences(piece: Prose) -> Iterator[tuple[int, str]]:
    """Split a piece of prose into sentences, each with its position in it."""
    begin = 0
    for end in _SENTENCE_END.finditer(piece.text):
        yield begin, piece.text[begin : end.start()]
        begin = end.end()
    yield begin, piece.text[begin:]


def _line(piece: Prose, at: int) -> int:
    return piece.line + piece.text.count("\n", 0, at)


# --- The files that it applies to -----------------------------------------------------------------


def held(files: dict[str, str]) -> dict[str, str]:
    """Keep the files whose prose is ours: all pages, and all Python and Rust."""
    return house.matching(files, "**/*.md", "**/*.py", "**/*.pyi", "**/*.rs")


def not_mended() -> list[str]:
    """Read the list of files that still have banned words."""
    return [line for line in LEFT.read_text().splitlines() if line and not line.startswith("#")]


def shrink(files: dict[str, str]) -> list[str]:
    """Keep on the list only files that still have banned words; return those removed."""
    listed = not_mended()
    still = [path for path in listed if path in files and banned(path, files[path])]
    LEFT.write_text(LEFT_HEAD + "".join(f"{path}\n" for path in still))
    return [path for path in listed if path not in still]


def _main() -> None:
    files = held(house.tracked_files())
    for path in shrink(files):
        print(f"{path} is clean, and no longer on the list")
    long = {path: len(long_sentences(path, text)) for path, text in files.items()}
    for path, count in sorted(long.items(), key=lambda item: -item[1])[:20]:
        print(f"{count:6} sentences of more than {SENTENCE_WORDS_MAX} words in {path}")
    print(f"{sum(long.values()):6} in all; {len(not_mended())} files are not mended yet")


if __name__ == "__main__":
    _main()

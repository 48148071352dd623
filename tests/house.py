"""The conventions of the project as functions: text in, complaints out.

Owns the rules of what a file may contain, and which modules it may use. A rule reads (path, text)
and returns one sentence for each complaint. So test_house.py can run it over the tree, and over a
bad sample. docs/ARCHITECTURE.md and deny.toml list the crates and the files with `unsafe`.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parent.parent
ENGINE = "rust/log/src/"
PACKAGE = "python/falaj/"

Rule = Callable[[str, str], list[str]]

# Which module of the engine may use which, from the lowest to the highest. Add a new module here. A
# listed module needs no more than its grants.
ROOMS: dict[str, set[str]] = {
    "canary": set(),
    "format": {"canary"},
    "sync": set(),
    "error": {"format"},
    "failpoints": set(),
    "publish": {"canary", "sync"},
    "lock": {"canary", "sync"},
    "wake": {"canary", "sync"},
    "group_commit": {"sync"},
    "shipper": {"sync", "lock"},
    "storage": {"format", "sync", "publish"},
    "segment": {"canary", "format", "error", "failpoints", "storage"},
    "log": {
        "canary",
        "format",
        "error",
        "failpoints",
        "sync",
        "lock",
        "wake",
        "group_commit",
        "shipper",
        "storage",
        "segment",
    },
    "store": {
        "canary",
        "format",
        "error",
        "failpoints",
        "lock",
        "shipper",
        "storage",
        "segment",
        "log",
    },
    "topic": {"format", "error", "segment", "log", "store"},
    "consumer": {
        "canary",
        "format",
        "error",
        "sync",
        "lock",
        "storage",
        "segment",
        "log",
        "store",
        "topic",
    },
    "sink": {"format", "error", "failpoints", "storage", "log", "store", "topic"},
    "queue": {"canary", "format", "error", "lock", "storage", "log", "store", "topic"},
    "internals": set(),
}

# Modules of the Python package above the core, and what each must not use.
PYTHON_ROOMS: dict[str, set[str]] = {
    "__main__": set(),
    "cli": set(),
    "demo": {"_core"},
    "pages": {"_core", "cli", "demo", "pipeline", "spark"},
    "pipeline": {"_core", "cli", "demo"},
    "spark": {"_core", "cli", "demo", "pages", "pipeline"},
}
# Folders that others of the same package use, and what each must not use of it.
PYTHON_FOLDERS: dict[str, set[str]] = {
    "spark/reading": {"source", "streaming", "writing"},
    "spark/streaming": {"source", "writing"},
    "spark/writing": {"source", "streaming"},
    "pipeline/base": {
        "compacting",
        "deduping",
        "exporting",
        "importing",
        "profiling",
        "replaying",
        "streaming",
    },
}
# Imports of a core module at module level beyond the standard library, with the reason.
CORE_IMPORTS_OF: dict[str, set[str]] = {
    "pytest_plugin": {"pytest"},  # only pytest itself loads it
    "_scan": {"pyarrow"},  # loaded by falaj.arrow.scan(): its class is one of pyarrow's
}

# The client: its errors, which are falaj's own where that is installed, and its few imports.
OWN_ERRORS = ROOT / "client/falaj_client/_own_errors.py"
CLIENT_IMPORTS: dict[str, set[tuple[str, str]]] = {
    "_drivers.py": {("httpx", "module")},
    "codecs.py": {("msgpack", "function")},
    "errors.py": {("falaj", "types")},  # in the other branch of an import for type checkers
}

# Only these may name a crate or a standard module that opens or locks files.
MAY_LOCK = ("rust/log/src/storage/lock.rs", "rust/log/src/storage/real/lock.rs")
MAY_OPEN = ("rust/log/src/storage/",)

CODE_LINES_MAX = 800
CODE_LINES_ASK = 500
INLINE_TEST_LINES_MAX = 150
ROOM_HEADER_LINES_MIN = 5
CONTRIBUTING_LINES_MAX = 90
DECISION_LINES_MAX = 60
# Files between ASK and MAX, each with the reason why it is not split.
LONG_FILES: dict[str, str] = {
    "rust/log/src/error.rs": "one enum, with the sentence of each variant",
    "rust/log/tests/log/format_doc/mod.rs": "one test a table of docs/FORMAT.md, in its order",
}


# --- The files ------------------------------------------------------------------------------------


def tracked_files() -> dict[str, str]:
    """Read every text file that git tracks, or would if it were added."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found: dict[str, str] = {}
    for path in sorted(set(listing.split("\0")) - {""}):
        file = ROOT / path
        if not file.is_file() or file.is_symlink():
            continue
        data = file.read_bytes()
        if b"\0" not in data:
            found[path] = data.decode("utf-8", errors="replace")
    return found


def matching(files: dict[str, str], *patterns: str) -> dict[str, str]:
    """Keep the files whose path matches one of the patterns; `**/` stands for any folders."""
    expressions = [re.compile(_glob_to_regex(pattern)) for pattern in patterns]
    return {p: text for p, text in files.items() if any(e.fullmatch(p) for e in expressions)}


def _glob_to_regex(pattern: str) -> str:
    return (
        re.escape(pattern)
        .replace(r"\*\*/", "(?:.*/)?")
        .replace(r"\*\*", ".*")
        .replace(r"\*", "[^/]*")
    )


def complaints(rule: Rule, files: dict[str, str]) -> list[str]:
    """Run a rule over the files; to have read none is a complaint too."""
    if not files:
        return [f"{getattr(rule, '__name__', rule)} found no file to read"]
    return [f"{path}: {said}" for path, text in files.items() for said in rule(path, text)]


# --- Reading Rust --------------------------------------------------------------------------------

RUST_TOKEN = re.compile(
    r"""//[^\n]*
      | /\*.*?\*/
      | \bb?c?r(\#*)".*?"\1
      | "(?:\\.|[^"\\])*"
      | '(?:\\[^\n']{1,10}|\\'|[^\\'\n])'
    """,
    re.VERBOSE | re.DOTALL,
)


def rust_code(text: str) -> str:
    """Blank out comments and literals; every line stays where it is."""
    return RUST_TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def split_inline_tests(text: str) -> tuple[str, str]:
    """Split a Rust file at `#[cfg(test)] mod name {`: shipped code, and its tests."""
    match = re.search(r"^#\[cfg\((?:all\()?test\b[^\n]*\n(?:#\[[^\n]*\n)*mod \w+ \{", text, re.M)
    return (text[: match.start()], text[match.start() :]) if match else (text, "")


def is_rust_test(path: str) -> bool:
    """True for a file of tests."""
    parts = PurePosixPath(path).parts
    return "tests" in parts or parts[-1] in ("tests.rs", "test.rs") or "benches" in parts


def room_of(path: str) -> str | None:
    """Name the module of the engine that a file belongs to; lib.rs belongs to none."""
    name = path.removeprefix(ENGINE).split("/")[0].removesuffix(".rs")
    return None if name == "lib" else name


def crate_paths(path: str, code: str) -> Iterator[str]:
    """Yield the first name of every path that begins at the crate root, `super::` included."""
    for match in re.finditer(r"\bcrate\s*::\s*(\{|\w+)", code):
        yield from _first_names(code, match)
    depth = len(_module_path(path))
    for match in re.finditer(r"\b((?:super\s*::\s*)+)(\{|\w+)", code):
        if match[1].count("super") == depth and match[2] != "super":
            yield from _first_names(code, match)


def _first_names(code: str, match: re.Match[str]) -> Iterator[str]:
    if match[match.lastindex or 0] != "{":
        yield match[match.lastindex or 0]
        return
    depth, begin = 1, match.end()
    for at in range(begin, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0 or (depth == 1 and code[at] == ","):
            if name := re.match(r"\s*(\w+)", code[begin:at]):
                yield name[1]
            begin = at + 1
        if depth == 0:
            return


def _module_path(path: str) -> list[str]:
    parts = path.removeprefix(ENGINE).removesuffix(".rs").split("/")
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


# --- Rules for Rust ------------------------------------------------------------------------------


def holds_unsafe(text: str) -> bool:
    """True if Rust code, not a comment or a lint's name, says unsafe."""
    return bool(re.search(r"\bunsafe\b", rust_code(text)))


def unsafe_without_reason(path: str, text: str) -> list[str]:
    """Every unsafe block or impl has a comment with SAFETY: right above it."""
    lines, said = text.splitlines(), []
    for number, line in enumerate(rust_code(text).splitlines()):
        if not re.search(r"\bunsafe\s*(\{|impl\b|$)", line):
            continue
        above = number - 1
        while above >= 0 and _leads_to_unsafe(lines[above]):
            above -= 1
        comment = []
        while above >= 0 and lines[above].lstrip().startswith("//"):
            comment.append(lines[above])
            above -= 1
        if not any("SAFETY:" in part for part in comment):
            said.append(f"line {number + 1}: unsafe without a SAFETY: comment right above")
    return said


def _leads_to_unsafe(line: str) -> bool:
    """True for attributes and the first line of a statement that the block continues: `let x =`."""
    stripped = line.strip()
    return stripped.startswith("#[") or stripped.endswith(("=", "(", "return"))


def locks_outside_storage(path: str, text: str) -> list[str]:
    """Only the lock file of storage knows fs2."""
    if path in MAY_LOCK or not re.search(r"\bfs2\b", rust_code(text)):
        return []
    return [f"names fs2; only {MAY_LOCK[0]} may"]


def files_outside_storage(path: str, text: str) -> list[str]:
    """The engine opens files through storage, so that the other storages can stand in."""
    code = rust_code(split_inline_tests(text)[0])
    if path.startswith(MAY_OPEN) or is_rust_test(path) or not re.search(r"\bstd\s*::\s*fs\b", code):
        return []
    return ["uses std::fs; file access goes through the storage room"]


def uses_against_the_layers(path: str, text: str) -> list[str]:
    """A module uses only the modules that `ROOMS` grants it; its tests also use rust/twin."""
    room = room_of(path)
    if room is None or is_rust_test(path):
        return []
    if room not in ROOMS:
        return [f"the room {room!r} has no place in ROOMS of tests/house.py"]
    said = []
    for name in crate_paths(path, rust_code(split_inline_tests(text)[0])):
        if name[0].isupper():
            said.append(f"takes {name} from the crate root; name the room that it comes from")
        elif name == "twin" and path.endswith("_tests.rs"):
            continue
        elif name != room and name not in ROOMS[room]:
            said.append(f"room {room!r} uses {name!r}, which it must not know")
    return said


def rust_header_missing(path: str, text: str) -> list[str]:
    """Every Rust file begins with a //! header; a module's has at least five lines."""
    body = text.lstrip("\ufeff\n").splitlines()
    header = 0
    while header < len(body) and body[header].startswith("//!"):
        header += 1
    if header == 0:
        return ["has no //! header"]
    in_room = path.removeprefix(ENGINE).removesuffix("/mod.rs").removesuffix(".rs")
    is_room = path.startswith(ENGINE) and "/" not in in_room and in_room != "lib"
    if is_room and header < ROOM_HEADER_LINES_MIN:
        return [f"is a room and its header has {header} lines of at least {ROOM_HEADER_LINES_MIN}"]
    return []


def lib_does_more_than_list(path: str, text: str) -> list[str]:
    """lib.rs only lists: modules, re-exports, attributes."""
    found = re.findall(r"\b(fn|impl|struct|enum|trait|static|union|macro_rules)\b", rust_code(text))
    return [f"defines a {word}; lib.rs only lists" for word in sorted(set(found))]


def numbers_for_durations(path: str, text: str) -> list[str]:
    """A public function takes a Duration, not a number of milliseconds or microseconds."""
    taken = re.findall(r"^(\S+): pub .*\bfn .*?\b(\w+_(?:ms|us|micros|millis))\s*:", text, re.M)
    return [f"{name} takes {number}; take a Duration" for name, number in taken]


def inline_tests_too_long(path: str, text: str) -> list[str]:
    """Rust tests that are longer than 150 lines leave the file."""
    length = len(split_inline_tests(text)[1].splitlines())
    return [f"{length} lines of inline tests"] if length > INLINE_TEST_LINES_MAX else []


# --- Rules for Python ----------------------------------------------------------------------------


def python_imports_against_the_layers(extras: set[str]) -> Rule:
    """Make the rule: the core uses no module above it, and extras only inside functions."""

    def rule(path: str, text: str) -> list[str]:
        room = path.removeprefix(PACKAGE).split("/")[0].removesuffix(".py")
        said = []
        for module, scope in _imports(ast.parse(text)):
            top, _, rest = module.partition(".")
            inner = rest.split(".")[0]
            if top == "falaj":
                said += _falaj_import(room, inner)
            elif room not in PYTHON_ROOMS and not _is_standard(top):
                allowed = CORE_IMPORTS_OF.get(room, set()) | (
                    extras if scope != "module" else set()
                )
                if top not in allowed:
                    said.append(f"the core imports {top} at {scope} level")
        return said

    return rule


def _falaj_import(room: str, inner: str) -> list[str]:
    forbidden = PYTHON_ROOMS.get(room, set(PYTHON_ROOMS))
    return [f"{room!r} imports falaj.{inner}, which it must not know"] * (inner in forbidden)


def client_imports(path: str, text: str) -> list[str]:
    """Let the drivers alone use httpx, and the errors alone falaj: the rest sends nothing."""
    name = path.rpartition("/")[2]
    granted = CLIENT_IMPORTS.get(name, set())
    return [
        f"{name} imports {module} at {scope} level"
        for module, scope in _imports(ast.parse(text))
        if (top := module.partition(".")[0]) != "falaj_client"
        and not _is_standard(top)
        and (top, scope) not in granted
    ]


def python_imports_against_the_folders(path: str, text: str) -> list[str]:
    """Refuse an import by which a folder would know a folder that uses it; types count too."""
    folder = path.removeprefix("python/falaj/").rpartition("/")[0]
    package = folder.partition("/")[0]
    found = (name.split(".") for name, _ in _imports(ast.parse(text)))
    return [
        f"{folder} imports {'.'.join(parts)}, which it must not know"
        for parts in found
        if parts[:2] == ["falaj", package] and {*parts[2:3]} & PYTHON_FOLDERS.get(folder, set())
    ]


def _is_standard(top: str) -> bool:
    return top in sys.stdlib_module_names


_PACKAGES = {"falaj.pipeline", "falaj.spark"}


def _imports(tree: ast.AST, scope: str = "module") -> Iterator[tuple[str, str]]:
    """Yield every imported module with where: module, function, or types (TYPE_CHECKING)."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, scope) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level or base == "falaj" or base in _PACKAGES:  # these import modules too
                if node.level:
                    base = f"falaj.{base}" if base else "falaj"
                yield from ((f"{base}.{alias.name}", scope) for alias in node.names)
            else:
                yield base, scope
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _imports(node, "function")
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _imports(node, "types")
        else:
            yield from _imports(node, scope)


def python_header_missing(path: str, text: str) -> list[str]:
    """Every Python module has a docstring."""
    return [] if ast.get_docstring(ast.parse(text)) else ["has no module docstring"]


def init_does_more_than_list(path: str, text: str) -> list[str]:
    """__init__.py only lists: imports and names with dunders."""
    return [
        f"line {node.lineno}: {type(node).__name__}; __init__.py only lists"
        for node in ast.parse(text).body
        if not _only_lists(node)
    ]


def _only_lists(node: ast.stmt) -> bool:
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return name.startswith("__") and name.endswith("__")
        case ast.If(orelse=[]):
            return "TYPE_CHECKING" in ast.unparse(node.test) and all(map(_only_lists, node.body))
    return False


# --- Rules for both ------------------------------------------------------------------------------


def code_lines(path: str, text: str) -> int:
    """Count lines that are code: no blanks, comments, docstrings, inline Rust tests."""
    if path.endswith(".rs"):
        shipped = text if is_rust_test(path) else split_inline_tests(text)[0]
        kept = re.sub(r"//[^\n]*|/\*.*?\*/", "", shipped, flags=re.DOTALL).splitlines()
        return sum(1 for line in kept if line.strip())
    docstrings = set(_docstring_lines(ast.parse(text)))
    return sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#") and number not in docstrings
    )


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)


def file_too_long(path: str, text: str) -> list[str]:
    """Split at 800 lines of code; from 500 on, give a reason in LONG_FILES."""
    lines = code_lines(path, text)
    if lines > CODE_LINES_MAX:
        return [f"{lines} lines of code; split it"]
    if lines > CODE_LINES_ASK and path not in LONG_FILES:
        return [f"{lines} lines of code; split it, or give the reason in LONG_FILES"]
    return []


# A word in Rust has a `sleep` too, which waits for a change of the word, as a futex does.
_RUST_SLEEP = r"(?<!fn )(?<!super::)(?<![\w.])sle" + r"ep\("
_PYTHON_SLEEP = r"(?<!\w)sle" + r"ep\("


def sleeps_without_reason(path: str, text: str) -> list[str]:
    """A test that sleeps says why, in a comment `sleep:` on the line or right above."""
    lines = text.splitlines()
    tests_begin = 0
    if path.endswith(".rs") and not is_rust_test(path):
        tests_begin = len(split_inline_tests(text)[0].splitlines())
    return [
        f"line {number + 1}: sleeps without a comment `sleep:` that says why"
        for number, line in enumerate(lines)
        if number >= tests_begin
        and re.search(_RUST_SLEEP if path.endswith(".rs") else _PYTHON_SLEEP, line)
        and not re.search(r"(#|//) sleep: \w", " ".join(lines[max(0, number - 1) : number + 1]))
    ]


# Written in pieces, so that this file does not break its own rules.
_UNDONE = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
_MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:work|ro" + r"ot)/")


def things_left_undone(path: str, text: str) -> list[str]:
    """Unfinished work belongs in the tracker, not in a comment."""
    return [f"says {match[0]}" for match in _UNDONE.finditer(text)]


def machine_paths(path: str, text: str) -> list[str]:
    """Nothing depends on the path of a clone."""
    return [f"names the path {match[0]}…" for match in _MACHINE_PATH.finditer(text)]


# --- Pages
# ------------------------------------------------------------------------------------------


def tests_that_papers_name(path: str, text: str) -> list[str]:
    """List `path::name` of every test that a page of docs/ names."""
    return re.findall(r"`((?:[\w.-]+/)*[\w.-]+\.(?:rs|py)::\w+)`", text)


def tests_that_are_not_there(files: dict[str, str]) -> Rule:
    """Make the rule: a test that a page names exists; paths begin at rust/log or at the root."""

    def rule(path: str, text: str) -> list[str]:
        said = []
        for named in tests_that_papers_name(path, text):
            file, _, name = named.partition("::")
            sources = (files.get(place + file, "") for place in ("rust/log/", ""))
            if not any(re.search(rf"\b(?:fn|def) {name}\(", source) for source in sources):
                said.append(f"names the test {named}, which does not exist")
        return said

    return rule


def promises_without_tests(path: str, text: str) -> list[str]:
    """Each promise has an id of its own, and the table of tests has a test for each id."""
    promised, _, tested = text.partition("\n## Tests\n")
    ids = re.findall(r"^\| (G\d+) \| \S", promised, re.M)
    shown = re.findall(r"^\| (G\d+) \| `[^`]+::\w+`", tested, re.M)
    return differences(shown, ids, "the table of tests") + [
        f"{name} names two promises" for name in sorted({n for n in ids if ids.count(n) > 1})
    ]


def tables_without_heading(path: str, text: str) -> list[str]:
    """A table begins with a heading row and a rule; a part after a blank line is shown as text."""
    lines = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S).splitlines()
    return [
        f"has a table without a heading: {line[:40]}…"
        for before, line, below in zip(["", *lines], lines, [*lines[1:], ""], strict=False)
        if line.startswith("|") and not before.startswith("|") and not _TABLE_RULE.fullmatch(below)
    ]


_TABLE_RULE = re.compile(r"\|(?: *:?-+:? *\|)+")


def contents_that_differ(path: str, text: str) -> list[str]:
    """The list of contents of a page names its sections, in their order."""
    listed = re.search(r"^Contents: (.+?)\n\n", text, re.M | re.S)
    if listed is None:
        return []
    linked = re.findall(r"\[([^]]+)\]\(#", listed[1].replace("\n", " "))
    headings = re.findall(r"^## (.+)$", text, re.M)
    if linked == headings:
        return []
    return differences(linked, headings, "the contents") or ["lists sections in another order"]


def sections_that_are_not_there(files: dict[str, str]) -> Rule:
    """Make the rule: a section of docs/ that a header names exists."""
    named = re.compile(r"""docs/(\w+\.md)`?,\s"([^"]+)"(?:\sand\s"([^"]+)")?""")

    def rule(path: str, text: str) -> list[str]:
        said = []
        for match in named.finditer(re.sub(r"\n\s*(?://[!/]?|#) ?", " ", text)):
            headings = re.findall(r"^#+ (.+)$", files.get(f"docs/{match[1]}", ""), re.M)
            said += [
                f"names the section {section!r} of {match[1]}, which is not there"
                for section in match.groups()[1:]
                if section and section not in headings
            ]
        return said

    return rule


def table_keys(markdown: str, heading: str) -> list[str]:
    """List the code words in the first column of the tables below a heading."""
    _, _, below = markdown.partition(f"\n## {heading}\n")
    section = below.split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.M)


def differences(listed: Iterable[str], found: Iterable[str], where: str) -> list[str]:
    """Complain of each name that is in one list only."""
    listed, found = list(listed), set(found)
    return (
        [f"{name} is missing in {where}" for name in sorted(found - set(listed))]
        + [f"{name} is in {where} and nowhere else" for name in sorted(set(listed) - found)]
        + [
            f"{name} is twice in {where}"
            for name in sorted({n for n in listed if listed.count(n) > 1})
        ]
    )


def direct_dependencies(manifest: str) -> set[str]:
    """Name the crates that a Cargo.toml requires, without those by path."""
    document = tomllib.loads(manifest)
    tables = [document, *document.get("target", {}).values()]
    return {
        name
        for table in tables
        for kind in ("dependencies", "dev-dependencies", "build-dependencies")
        for name, wanted in table.get(kind, {}).items()
        if not (isinstance(wanted, dict) and "path" in wanted)
    }


def versions_that_differ(cargo: str, pyproject: str, changelog: str) -> list[str]:
    """The version is written in Cargo.toml; other files read it or agree with it."""
    version = tomllib.loads(cargo)["workspace"]["package"]["version"]
    project = tomllib.loads(pyproject)["project"]
    said = []
    if "version" not in project.get("dynamic", []) and project.get("version") != version:
        said.append(f"pyproject.toml has another version than Cargo.toml ({version})")
    headings = re.findall(r"^## \[([^\]]+)\]", changelog, re.M)
    released = [heading for heading in headings if heading != "Unreleased"]
    if not headings or (released and released[0] != version):
        said.append(f"the newest heading of CHANGELOG.md is not {version}, that of Cargo.toml")
    return said


def features_that_plant(files: dict[str, str]) -> list[str]:
    """Planted bugs and fail points use `--cfg`: any crate of a program could turn a feature on."""
    named = re.compile(r"""(?<!falaj_)\b(?:canaries|failpoints)\b(?=["'/ =])""")
    inside = re.compile(r'feature\s*=\s*"[^"]*(?:canar|failpoint)')
    return [
        f"{path} has a cargo feature for planted bugs or fail points"
        for path, text in sorted(files.items())
        if (named if path.endswith("Cargo.toml") else inside).search(text)
    ]


def licence_is_allowed(expression: str, allowed: set[str]) -> bool:
    """Evaluate an SPDX expression: AND needs both sides, OR (or the old `/`) one."""
    expression = expression.replace("/", " OR ").strip()
    while inner := re.search(r"\(([^()]*)\)", expression):
        verdict = "yes" if licence_is_allowed(inner[1], allowed) else "no"
        expression = expression.replace(inner[0], verdict)
    return any(
        all(part.strip() in allowed | {"yes"} for part in choice.split(" AND "))
        for choice in expression.split(" OR ")
    )


def banned_edges(deny: str, edges: Iterable[tuple[str, str]]) -> list[str]:
    """Complain of (dependent, dependency) pairs that deny.toml does not allow."""
    bans = {ban["crate"]: ban["wrappers"] for ban in tomllib.loads(deny)["bans"]["deny"]}
    return [
        f"{user} depends on {crate}, which deny.toml bans there"
        for user, crate in sorted(set(edges))
        if crate in bans and user not in bans[crate]
    ]

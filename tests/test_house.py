"""The conventions of the project, checked as tests.

Each rule has a test of its own. Beside it, another one gives the rule a bad sample, so that no rule
can stay silent always. The rules themselves are in house.py.
"""

import re
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

import falaj
import house
from falaj import _core
from house import ENGINE, PACKAGE, ROOT, complaints, matching


@cache
def files() -> dict[str, str]:
    return house.tracked_files()


def rust_files() -> dict[str, str]:
    return matching(files(), "**/*.rs")


def engine_files() -> dict[str, str]:
    return matching(files(), ENGINE + "**/*.rs")


def python_files() -> dict[str, str]:
    folders = ("python", "client", "tests", "tools", "benches")
    return matching(files(), *(f"{folder}/**/*.py" for folder in folders))


def package_files() -> dict[str, str]:
    return matching(files(), PACKAGE + "**/*.py")


def test_files_written_in_the_test_tree_are_seen() -> None:
    assert {"Cargo.toml", "tests/test_house.py", ENGINE + "lib.rs"} <= files().keys()


def test_a_rule_that_looked_at_nothing_complains() -> None:
    assert complaints(house.things_left_undone, {}) == ["things_left_undone found no file to read"]


def test_patterns_match_files_at_any_depth_and_no_others() -> None:
    tree = dict.fromkeys(["a.rs", "x/a.rs", "x/y/a.rs", "x/a.rst", "y/a.rs"], "")
    assert list(matching(tree, "x/**/*.rs")) == ["x/a.rs", "x/y/a.rs"]
    assert list(matching(tree, "**/*.rs")) == ["a.rs", "x/a.rs", "x/y/a.rs", "y/a.rs"]


# --- Unsafe --------------------------------------------------------------------------------------


def unsafe_table() -> list[str]:
    return house.table_keys(files()["docs/ARCHITECTURE.md"], "Files with unsafe code")


def test_unsafe_stands_in_the_files_that_architecture_names_and_only_there() -> None:
    assert rust_files()
    holders = [path for path, text in rust_files().items() if house.holds_unsafe(text)]
    assert house.differences(unsafe_table(), holders, "the unsafe table of ARCHITECTURE.md") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fn f() { unsafe { g() } }", True),
        ("unsafe impl Send for X {}", True),
        ("let quote = '\"'; unsafe { g() } // \"", True),
        ("fn f<'a>(x: &'a str) { unsafe { g() } }", True),
        ('// unsafe\n/* unsafe */ let s = "unsafe"; let r = r#"unsafe " "#;', False),
        ("#![deny(unsafe_code)]", False),
    ],
)
def test_unsafe_code_is_distinguished_from_words_about_it(text: str, expected: bool) -> None:
    assert house.holds_unsafe(text) is expected


def test_a_table_that_differs_from_the_files_is_complained_of() -> None:
    rows = "| file | why |\n|---|---|\n| `a.rs` | x |\n| `b.rs` | y |\n"
    table = f"# A\n\n## Which\n\n{rows}\n## Next\n\n| `c` | z |\n"
    assert house.table_keys(table, "Which") == ["a.rs", "b.rs"]
    assert house.differences(["a.rs", "b.rs", "b.rs"], ["a.rs", "d.rs"], "T") == [
        "d.rs is missing in T",
        "b.rs is in T and nowhere else",
        "b.rs is twice in T",
    ]


def test_every_unsafe_block_has_its_reason_right_above() -> None:
    assert complaints(house.unsafe_without_reason, rust_files()) == []


@pytest.mark.parametrize(
    "bad",
    [
        "fn f() {\n    unsafe { g() }\n}\n",
        "// SAFETY: far away\n\nlet x = 1;\nunsafe { g() }\n",
        "unsafe impl Sync for X {}\n",
        "// a comment that gives no reason\nlet x = unsafe { g() };\n",
        "let x = unsafe\n{ g() };\n",
    ],
)
def test_unsafe_without_its_reason_is_complained_of(bad: str) -> None:
    assert len(house.unsafe_without_reason("a.rs", bad)) == 1


@pytest.mark.parametrize(
    "good",
    [
        "// SAFETY: the map is held by this Arc\n// while the view lives.\nunsafe { g() }\n",
        "// SAFETY: checked above\n#[inline]\nunsafe impl Sync for X {}\n",
        "// SAFETY: checked above\nlet value =\n    unsafe { g() };\n",
        "/// # Safety\npub unsafe fn f() {}\n",
    ],
)
def test_unsafe_with_its_reason_is_fine(good: str) -> None:
    assert house.unsafe_without_reason("a.rs", good) == []


# --- Layers ---------------------------------------------------------------------------------------


def test_only_the_lock_file_of_storage_knows_fs2() -> None:
    assert complaints(house.locks_outside_storage, rust_files()) == []


def test_fs2_elsewhere_is_complained_of() -> None:
    text = "use fs2::FileExt;\n"
    assert house.locks_outside_storage(ENGINE + "log/mod.rs", text)
    assert not house.locks_outside_storage(house.MAY_LOCK[0], text)
    assert not house.locks_outside_storage(ENGINE + "log/mod.rs", "// fs2 is elsewhere\n")


def test_the_engine_opens_files_in_storage_only() -> None:
    assert complaints(house.files_outside_storage, engine_files()) == []


def test_a_file_opened_elsewhere_is_complained_of() -> None:
    text = "use std::fs::File;\n"
    assert house.files_outside_storage(ENGINE + "segment/writer.rs", text)
    assert not house.files_outside_storage(ENGINE + "storage/real/file.rs", text)
    in_tests = "#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n"
    assert not house.files_outside_storage(ENGINE + "segment/writer.rs", in_tests)


def test_rooms_of_the_engine_use_only_the_rooms_below_them() -> None:
    assert complaints(house.uses_against_the_layers, engine_files()) == []


def test_the_modules_have_an_order_in_which_each_uses_only_earlier_ones() -> None:
    for place, (room, granted) in enumerate(house.ROOMS.items()):
        assert granted <= set(list(house.ROOMS)[:place]), room


def test_every_room_that_has_a_place_exists() -> None:
    there = {house.room_of(path) for path in engine_files()} - {None}
    assert house.differences(house.ROOMS, {room for room in there if room}, "ROOMS") == []


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        ("format/block.rs", "use crate::storage::Map;"),
        ("format/block.rs", "use crate::error::Error;"),
        ("storage/map.rs", "use crate::{format::block, segment::Reader};"),
        ("storage/mod.rs", "use super::segment;"),
        ("storage/real/file.rs", "use super::super::super::log::Log;"),
        ("segment/reader.rs", "fn f(log: &crate::log::Log) {}"),
        ("log/append.rs", "use crate::Store;"),
        ("segment/index.rs", "use crate::twin::memory::MemoryStorage;"),
        ("attic/mod.rs", "fn f() {}"),
        ("attic.rs", "fn f() {}"),
    ],
)
def test_a_room_that_reaches_upwards_is_complained_of(path: str, bad: str) -> None:
    assert len(house.uses_against_the_layers(ENGINE + path, bad)) == 1


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("lib.rs", "pub mod log; pub use crate::log::Log;"),
        ("format/block.rs", "use crate::format::varint; use super::checksum; pub(crate) fn f() {}"),
        ("log/append.rs", "use crate::{segment::{Reader, Writer}, storage::Map, error::Error};"),
        ("segment/writer.rs", "// crate::log calls this\nuse super::super::storage::Map;"),
        ("format/block.rs", "\n#[cfg(test)]\nmod tests {\n    use crate::storage::memory;\n}\n"),
        ("format/tests.rs", "use crate::storage::memory;"),
        ("segment/index_tests.rs", "use crate::twin::memory::MemoryStorage;"),
    ],
)
def test_a_room_that_reaches_downwards_is_fine(path: str, good: str) -> None:
    assert house.uses_against_the_layers(ENGINE + path, good) == []


def optional_packages() -> set[str]:
    extras = tomllib.loads(files()["pyproject.toml"])["project"]["optional-dependencies"]
    users = {name: wanted for name, wanted in extras.items() if name != "dev"}
    wanted = [entry for entries in users.values() for entry in entries]
    return {re.split(r"[^\w-]", entry)[0].replace("-", "_") for entry in wanted}


def python_layer_rule() -> house.Rule:
    return house.python_imports_against_the_layers(optional_packages())


def test_the_python_core_knows_no_room_above_it_and_no_third_party() -> None:
    assert {"rich", "msgpack", "pyarrow"} <= optional_packages()
    assert complaints(python_layer_rule(), package_files()) == []


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        ("_topic.py", "import falaj.cli"),
        ("_topic.py", "from falaj import spark"),
        ("_topic.py", "from . import pipeline"),
        ("_topic.py", "from .spark import reader"),
        ("_topic.py", "def f():\n    from falaj.spark.reader import Reader"),
        ("_topic.py", "import pyarrow"),
        ("_topic.py", "import requests"),
        ("_topic.py", "def f():\n    import requests"),
        ("_topic.py", "try:\n    import msgpack\nexcept ImportError:\n    pass"),
        ("_topic.py", "class C:\n    import numpy.linalg"),
        ("spark/reader.py", "from falaj._core import Store"),
        ("spark/reader.py", "from falaj import cli"),
        ("pipeline/jobs.py", "import falaj._core"),
    ],
)
def test_a_python_import_against_the_layers_is_complained_of(path: str, bad: str) -> None:
    assert len(python_layer_rule()(PACKAGE + path, bad)) == 1


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("_topic.py", "import json\nfrom falaj._core import Topic\nfrom falaj.errors import Error"),
        ("_topic.py", "def f():\n    import pyarrow as pa"),
        ("_topic.py", "if TYPE_CHECKING:\n    import pyarrow as pa"),
        ("pytest_plugin.py", "import pytest"),
        ("cli.py", "import rich\nfrom falaj import _topic, demo"),
        ("spark/reader.py", "import pyarrow\nfrom falaj._topic import Topic"),
        ("pipeline/jobs.py", "from falaj.spark import reader"),
    ],
)
def test_a_python_import_along_the_layers_is_fine(path: str, good: str) -> None:
    assert python_layer_rule()(PACKAGE + path, good) == []


def test_folders_of_a_package_know_none_of_the_folders_that_use_them() -> None:
    assert complaints(house.python_imports_against_the_folders, package_files()) == []


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        ("spark/reading/ranges.py", "from falaj.spark.streaming.lag import Cursors"),
        ("spark/reading/ranges.py", "from falaj.spark import source"),
        ("spark/writing/sink.py", "if TYPE_CHECKING:\n    import falaj.spark.streaming.stream"),
        ("pipeline/base/frame.py", "def f():\n    from falaj.pipeline import exporting"),
    ],
)
def test_an_import_of_a_folder_that_uses_it_is_complained_of(path: str, bad: str) -> None:
    assert len(house.python_imports_against_the_folders(PACKAGE + path, bad)) == 1


def test_the_client_needs_httpx_alone_and_knows_falaj_by_its_errors() -> None:
    client = matching(files(), "client/**/*.py")
    assert complaints(house.client_imports, client) == []
    assert house.OWN_ERRORS.is_symlink()
    assert house.OWN_ERRORS.resolve() == ROOT / "python/falaj/errors.py"
    assert 'dependencies = ["httpx' in files()["client/pyproject.toml"]


@pytest.mark.parametrize(
    ("path", "bad"),
    [
        ("store.py", "import falaj"),
        ("store.py", "def f():\n    from falaj import _core"),
        ("store.py", "import requests"),
        ("store.py", "import httpx"),
        ("codecs.py", "import msgpack"),
    ],
)
def test_a_client_that_needs_more_is_complained_of(path: str, bad: str) -> None:
    assert len(house.client_imports(f"client/falaj_client/{path}", bad)) == 1


# --- Crates --------------------------------------------------------------------------------------


@cache
def crate_licences() -> dict[str, str]:
    """Name the crates that are built for deny.toml's platforms, as `cargo deny` would."""
    targets = tomllib.loads(files()["deny.toml"])["graph"]["targets"]
    kinds = ["--edges", "normal,build,dev", "--prefix", "none", "--format", "{p}|{l}"]
    platforms = [f"--target={target}" for target in targets]
    done = subprocess.run(
        ["cargo", "tree", "--workspace", "--locked", *kinds, *platforms],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    lines = {line.removesuffix(" (*)") for line in done.stdout.splitlines() if "|" in line}
    return dict(line.split("|", 1) for line in lines)


def crate_edges(lock: str) -> list[tuple[str, str]]:
    packages = tomllib.loads(lock)["package"]
    return [(p["name"], d.split(" ")[0]) for p in packages for d in p.get("dependencies", [])]


def test_banned_crates_come_in_only_where_deny_toml_grants_it() -> None:
    edges = crate_edges(files()["Cargo.lock"])
    assert ("falaj-py", "pyo3") in edges
    assert house.banned_edges(files()["deny.toml"], edges) == []


def test_a_banned_crate_is_complained_of() -> None:
    edges = [("falaj", "pyo3"), ("falaj-py", "pyo3"), ("falaj", "tokio"), ("falaj", "libc")]
    assert house.banned_edges(files()["deny.toml"], edges) == [
        "falaj depends on pyo3, which deny.toml bans there",
        "falaj depends on tokio, which deny.toml bans there",
    ]


def test_every_crate_has_a_licence_that_deny_toml_allows() -> None:
    allowed = set(tomllib.loads(files()["deny.toml"])["licenses"]["allow"])
    licences = crate_licences()
    assert len(licences) > 10
    refused = {
        crate: licence
        for crate, licence in licences.items()
        if not house.licence_is_allowed(licence or "none", allowed)
    }
    assert refused == {}


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("MIT/GPL-3.0", True),
        ("(MIT OR GPL-3.0) AND ISC", True),
        ("GPL-3.0", False),
        ("MIT AND GPL-3.0", False),
        ("ISC AND (GPL-3.0 OR LGPL-3.0)", False),
        ("none", False),
    ],
)
def test_licence_expressions_are_evaluated(expression: str, allowed: bool) -> None:
    assert house.licence_is_allowed(expression, {"MIT", "ISC"}) is allowed


def test_architecture_gives_a_reason_for_every_dependency() -> None:
    manifests = matching(files(), "rust/**/Cargo.toml")
    assert len(manifests) >= 2
    wanted = set[str]().union(*map(house.direct_dependencies, manifests.values()))
    table = house.table_keys(files()["docs/ARCHITECTURE.md"], "Dependencies")
    assert house.differences(table, wanted, "the dependencies of ARCHITECTURE.md") == []


def test_dependencies_of_every_kind_are_read() -> None:
    manifest = """
        dependencies = { a = "1", own = { path = "../own" } }
        dev-dependencies = { b = { version = "1" } }
        [target.'cfg(loom)'.dependencies]
        c = "1"
    """
    assert house.direct_dependencies(manifest) == {"a", "b", "c"}


# --- Headers, sizes, lists -----------------------------------------------------------------------


def test_every_rust_file_says_what_it_is_for() -> None:
    assert complaints(house.rust_header_missing, rust_files()) == []


def test_a_rust_file_without_a_header_is_complained_of() -> None:
    short, room = "//! One line.\n", "//! Owns\n" * 5
    assert house.rust_header_missing("rust/py/src/store.rs", "use std::fmt;\n")
    assert house.rust_header_missing(ENGINE + "log/mod.rs", short)
    assert house.rust_header_missing(ENGINE + "error.rs", short)
    assert not house.rust_header_missing(ENGINE + "log/mod.rs", room)
    assert not house.rust_header_missing(ENGINE + "log/append.rs", short)


def test_every_python_module_says_what_it_is_for() -> None:
    assert complaints(house.python_header_missing, python_files()) == []


def test_a_python_module_without_a_docstring_is_complained_of() -> None:
    assert house.python_header_missing("a.py", "import os\n")
    assert not house.python_header_missing("a.py", '"""What it is for."""\n')


def test_lib_rs_only_lists() -> None:
    libraries = matching(files(), "rust/**/src/lib.rs")
    assert complaints(house.lib_does_more_than_list, libraries) == []


def test_code_in_lib_rs_is_complained_of() -> None:
    assert len(house.lib_does_more_than_list("lib.rs", "pub fn f() {}\nimpl X {}\n")) == 2
    assert not house.lib_does_more_than_list("lib.rs", "//! fn\nmod log;\npub use log::Log;\n")


def test_public_functions_of_the_crate_take_durations() -> None:
    listing = matching(files(), "rust/log/public-api.txt")
    assert complaints(house.numbers_for_durations, listing) == []


def test_a_public_function_that_takes_milliseconds_is_complained_of() -> None:
    good = "falaj::Job::extend: pub fn extend(&self, lease: Duration) -> Result<()>\n"
    bad = good.replace("lease: Duration", "lease_ms: u64")
    assert len(house.numbers_for_durations("public-api.txt", bad)) == 1
    assert not house.numbers_for_durations("public-api.txt", good)


def test_init_py_only_lists() -> None:
    packages = matching(files(), "python/**/__init__.py", "client/**/__init__.py")
    assert complaints(house.init_does_more_than_list, packages) == []


def test_code_in_init_py_is_complained_of() -> None:
    bad = "def f(): ...\nlimit = 3\nif limit:\n    import os\n"
    assert len(house.init_does_more_than_list("__init__.py", bad)) == 3
    good = '"""Doc."""\nimport os\n__all__ = ["os"]\nif TYPE_CHECKING:\n    import re\n'
    assert not house.init_does_more_than_list("__init__.py", good)


def test_no_file_is_too_long() -> None:
    assert complaints(house.file_too_long, rust_files() | python_files()) == []


def test_every_long_file_that_is_excused_exists_and_is_long() -> None:
    sources = rust_files() | python_files()
    for path, reason in house.LONG_FILES.items():
        assert reason
        assert house.code_lines(path, sources[path]) > house.CODE_LINES_ASK


def test_a_file_that_is_too_long_is_complained_of() -> None:
    assert house.file_too_long("a.rs", "x();\n" * 801)
    assert house.file_too_long("a.rs", "x();\n" * 501)
    assert house.file_too_long("a.py", "x()\n" * 501)
    assert not house.file_too_long("a.rs", "x();\n// why\n\n" * 500)
    assert not house.file_too_long("a.py", '"""Doc.\n' + "doc\n" * 900 + '"""\n# why\nx()\n')
    assert not house.file_too_long("a.rs", "x();\n#[cfg(test)]\nmod tests {\n" + "x();\n" * 900)
    assert house.file_too_long("tests/a.rs", "#[cfg(test)]\nmod tests {\n" + "x();\n" * 900)


def test_long_rust_tests_have_left_their_file() -> None:
    assert complaints(house.inline_tests_too_long, rust_files()) == []


def test_long_inline_tests_are_complained_of() -> None:
    head = "fn f() {}\n#[cfg(test)]\nmod tests {\n"
    assert house.inline_tests_too_long("a.rs", head + "x();\n" * 150)
    assert not house.inline_tests_too_long("a.rs", head + "x();\n" * 140)
    assert not house.inline_tests_too_long("a.rs", "#[cfg(test)]\nmod tests;\n" + "x();\n" * 200)


# --- Words ---------------------------------------------------------------------------------------


def test_nothing_undone_hides_in_a_comment() -> None:
    assert complaints(house.things_left_undone, files()) == []


@pytest.mark.parametrize("word", ["TO" + "DO", "FIX" + "ME"])
def test_an_undone_thing_is_complained_of(word: str) -> None:
    assert house.things_left_undone("a.rs", f"// {word}: later\n")
    assert not house.things_left_undone("a.rs", f"// {word}ISH is a word of its own\n")


def test_no_file_names_a_path_of_somebodys_machine() -> None:
    assert complaints(house.machine_paths, files()) == []


@pytest.mark.parametrize("path", ["/wo" + "rk/main", '"/ro' + 'ot/.cargo"'])
def test_a_machine_path_is_complained_of(path: str) -> None:
    assert house.machine_paths("a.md", f"see {path}/x\n")
    assert not house.machine_paths("a.md", f"see docs{path.strip(chr(34))}/x\n")


def test_tests_do_not_sleep_without_a_reason() -> None:
    sources = matching(files(), "**/*.rs", "tests/**/*.py", "benches/**/*.py")
    assert complaints(house.sleeps_without_reason, sources) == []


def test_a_sleep_without_a_reason_is_complained_of() -> None:
    nap = "sl" + "eep"
    in_tests = "fn f() {}\n#[cfg(test)]\nmod tests {\n    thread::" + nap + "(ms);\n}\n"
    assert house.sleeps_without_reason("tests/test_a.py", f"time.{nap}(1)\n")
    assert house.sleeps_without_reason("rust/log/tests/a.rs", f"thread::{nap}(ms);\n")
    assert house.sleeps_without_reason(ENGINE + "a.rs", in_tests)
    assert not house.sleeps_without_reason(ENGINE + "a.rs", f"storage.{nap}(word);\n")
    reason = "# sl" + "eep: the kernel's timer is what is tested"
    assert not house.sleeps_without_reason("tests/test_a.py", f"time.{nap}(1)  {reason}\n")
    assert not house.sleeps_without_reason("tests/test_a.py", f"{reason}\ntime.{nap}(1)\n")


# --- Pages ----------------------------------------------------------------------------------------


def test_every_test_that_a_page_names_exists() -> None:
    pages = matching(files(), "docs/**/*.md", "README.md", "rust/log/README.md")
    assert complaints(house.tests_that_are_not_there(files()), pages) == []
    assert len(house.tests_that_papers_name("", pages["docs/PROTOCOL.md"])) > 50


def test_a_page_that_names_a_test_that_is_gone_is_complained_of() -> None:
    tree = {
        "rust/log/tests/a.rs": "fn it_holds() {}\n",
        "tests/test_b.py": "def test_b() -> None:\n",
    }
    rule = house.tests_that_are_not_there(tree)
    assert rule("docs/P.md", "`tests/a.rs::it_holds`, `tests/test_b.py::test_b`, `house.py`") == []
    assert len(rule("docs/P.md", "`tests/a.rs::it_held` and `src/a.rs::it_holds`")) == 2


def test_every_promise_has_an_id_and_a_test() -> None:
    page = matching(files(), "docs/GUARANTEES.md")
    assert complaints(house.promises_without_tests, page) == []
    assert len(re.findall(r"^\| G\d+ \| `", page["docs/GUARANTEES.md"], re.M)) > 200


def test_a_promise_without_an_id_of_its_own_or_a_test_is_complained_of() -> None:
    promises = "| G1 | It holds. |\n| G2 | It stays. |\n"
    page = f"{promises}\n## Tests\n\n| G1 | `a.rs::f` |\n| G2 | `a.rs::g` |\n"
    assert house.promises_without_tests("a.md", page) == []
    assert len(house.promises_without_tests("a.md", page.replace("`a.rs::g`", "none"))) == 1
    assert len(house.promises_without_tests("a.md", page.replace("| G2 | It", "| G1 | It"))) == 2
    assert len(house.promises_without_tests("a.md", page.replace("| G1 | It holds. |\n", ""))) == 1


def test_every_section_that_a_header_names_exists() -> None:
    assert complaints(house.sections_that_are_not_there(files()), rust_files()) == []


def test_a_header_that_names_a_section_that_is_gone_is_complained_of() -> None:
    rule = house.sections_that_are_not_there({"docs/P.md": "# P\n\n## Locks of a log\n\n## Roll\n"})
    good = '//! Prose: `docs/P.md`, "Locks\n//! of a log" and "Roll".\n'
    assert rule("a.rs", good) == []
    assert len(rule("a.rs", good.replace("Roll", "Rolling"))) == 1
    assert len(rule("a.rs", '// See `docs/Q.md`, "Roll".')) == 1


def pages() -> dict[str, str]:
    return matching(files(), "**/*.md")


def test_every_table_of_a_page_has_its_heading() -> None:
    assert complaints(house.tables_without_heading, pages()) == []


def test_a_table_that_a_blank_line_cuts_in_two_is_complained_of() -> None:
    table = "| a | b |\n|---|:-:|\n| 1 | 2 |\n"
    assert house.tables_without_heading("a.md", f"{table}\n```\n| x |\n```\n{table}") == []
    assert len(house.tables_without_heading("a.md", f"{table}\n| 3 | 4 |\n")) == 1


def test_the_contents_of_a_page_are_its_sections() -> None:
    assert complaints(house.contents_that_differ, pages()) == []
    assert "Contents: [" in files()["docs/PROTOCOL.md"]


def test_contents_that_leave_a_section_out_are_complained_of() -> None:
    page = "Contents: [One](#one) · [Two\nand more](#two-and-more)\n\n## One\n\n## Two and more\n"
    assert house.contents_that_differ("a.md", page) == []
    assert len(house.contents_that_differ("a.md", page + "\n## Three\n")) == 1
    assert len(house.contents_that_differ("a.md", page.replace("## One\n", "") + "\n## One\n")) == 1


def test_decisions_are_short_and_say_what_would_change_our_mind() -> None:
    decisions = matching(files(), "docs/decisions/0*.md")
    assert len(decisions) >= 10
    for path, text in decisions.items():
        assert len(text.splitlines()) <= house.DECISION_LINES_MAX, path
        headings = re.findall(r"^## (.+)$", text, re.M)
        wanted = ["Context", "Decision", "Consequences", "What would change our mind"]
        assert headings == wanted, path


def test_contributing_is_short() -> None:
    lines = files()["CONTRIBUTING.md"].splitlines()
    assert 10 < len(lines) <= house.CONTRIBUTING_LINES_MAX


def test_the_version_is_the_same_everywhere() -> None:
    papers = (files()[name] for name in ("Cargo.toml", "pyproject.toml", "CHANGELOG.md"))
    assert house.versions_that_differ(*papers) == []
    cited = re.search(r"^version: (.+)$", files()["CITATION.cff"], re.M)
    assert cited is not None
    assert cited[1] == tomllib.loads(files()["Cargo.toml"])["workspace"]["package"]["version"]


def test_the_server_and_the_extra_that_brings_it_have_the_version_of_the_package() -> None:
    version = tomllib.loads(files()["Cargo.toml"])["workspace"]["package"]["version"]
    crate = tomllib.loads(files()["rust/server/Cargo.toml"])
    assert crate["package"]["version"] == version
    assert crate["dependencies"]["falaj"]["version"] == version
    extras = tomllib.loads(files()["pyproject.toml"])["project"]["optional-dependencies"]
    assert extras["server"] == [f"falaj-server=={version}"]


def test_a_version_that_differs_is_complained_of() -> None:
    cargo = '[workspace.package]\nversion = "1.2.0"\n'
    dynamic, fixed = '[project]\ndynamic = ["version"]\n', '[project]\nversion = "1.1.0"\n'
    fresh, old = "## [Unreleased]\n## [1.2.0] - 2027-01-01\n", "## [Unreleased]\n## [1.1.0]\n"
    assert house.versions_that_differ(cargo, dynamic, fresh) == []
    assert len(house.versions_that_differ(cargo, fixed, old)) == 2
    assert len(house.versions_that_differ(cargo, dynamic, "nothing")) == 1


def test_the_module_that_is_tested_was_built_from_this_version() -> None:
    version = tomllib.loads(files()["Cargo.toml"])["workspace"]["package"]["version"]
    assert falaj.__version__ == version


def test_the_tree_has_models_for_loom_to_explore() -> None:
    models = matching(files(), "rust/log/tests/loom/**/*.rs")
    assert "loom::model::Builder" in "".join(map(house.rust_code, models.values()))


def test_the_tree_has_models_for_shuttle_to_draw_schedules_of() -> None:
    models = matching(files(), "rust/log/tests/shuttle/**/*.rs")
    code = "".join(map(house.rust_code, models.values()))
    assert "RandomScheduler::new_from_seed" in code
    assert "PctScheduler::new_from_seed" in code


def test_nothing_that_only_machines_read_lies_in_docs() -> None:
    beside = [path for path in files() if path.startswith("docs/") and not path.endswith(".md")]
    assert [path for path in beside if not path.startswith("docs/images/")] == []


def test_no_cargo_feature_plants_bugs_or_arms_fail_points() -> None:
    crates = matching(files(), "**/Cargo.toml", "Cargo.toml", "**/*.rs")
    assert house.features_that_plant(crates) == []
    assert b"FALAJ_CANARY" not in Path(_core.__file__).read_bytes()


def test_a_cargo_feature_that_plants_bugs_is_complained_of() -> None:
    bad = {
        "a/Cargo.toml": "[features]\ncanaries = []\n",
        "b/src/lib.rs": '#[cfg(feature = "failpoints")]\n',
        "b/Cargo.toml": '[dependencies]\nfalaj = { path = "../a", features = ["failpoints"] }\n',
        "c/src/lib.rs": "#[cfg(falaj_canaries)]\n",
    }
    assert len(house.features_that_plant(bad)) == 3

"""The files of an import: the list of them, sorted by path, and how names decide the format.

`rows` owns what is in them.
"""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from falaj.errors import InvalidArgument, PermissionDenied
from falaj.pipeline.importing import remote
from falaj.pipeline.importing.ledgers import SourceFile
from falaj.pipeline.importing.remote import escaped, is_remote

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import SparkSession

__all__ = [
    "base_of",
    "expect_readable",
    "folders_below",
    "form_of",
    "listed",
    "local",
    "look",
    "names_in",
    "not_columns",
]

_SUFFIXES = {
    "parquet": (".parquet", ".pq"),
    "csv": (".csv",),
    "json": (".json", ".jsonl", ".ndjson"),
}
_PACKED = (".gz", ".bz2", ".zst", ".xz", ".snappy", ".lz4", ".deflate")
_NAMED_MAX = 5
_AUTHORITY = 3
"""How many parts between slashes the beginning of a URL has, `s3a://bucket`."""
_FOLDER = re.compile(r"[^=]+=.*")


def listed(spark: SparkSession, source: Iterable[str]) -> list[SourceFile]:
    """Find the files, sorted by path.

    Args:
        spark: The session, which lists the files behind URLs.
        source: Files, folders and patterns; a folder stands for all files in it. Like Spark, it
            skips names in a folder that begin with `_` or `.`. Such a file is not complete yet, or
            only describes the others.

    Returns:
        The files, each once.

    Raises:
        InvalidArgument: A name matches no file.
    """
    given = list(source)
    here = local([each for each in given if not is_remote(each)])
    there = remote.listed(spark, [each for each in given if is_remote(each)])
    return sorted([*map(_look, here), *there], key=lambda file: file.path)


def look(spark: SparkSession, files: Iterable[SourceFile]) -> list[SourceFile]:
    """Examine files again, in the order of the argument."""
    paths = [file.path for file in files]
    there = remote.listed(spark, map(escaped, filter(is_remote, paths)))
    behind = {file.path: file for file in there}
    return [behind[path] if is_remote(path) else _look(path) for path in paths]


def local(source: Iterable[str]) -> list[str]:
    """Find files on this machine, each once, sorted by path.

    Raises:
        InvalidArgument: A name matches no file.
    """
    found: set[str] = set()
    for given in source:
        at = os.path.abspath(given)
        if os.path.isdir(at):
            found.update(_below(Path(at)))
        elif os.path.exists(at):
            found.add(at)
        else:
            matches = [path for path in glob.glob(at, recursive=True) if os.path.isfile(path)]
            below = len(_literal(at))
            matches = [path for path in matches if not _is_hidden(path[below:].lstrip("/"))]
            if not matches:
                raise InvalidArgument(f"there is no file {given}: give files, folders or patterns")
            found.update(matches)
    return sorted(found)


def names_in(path: str, base: str | None) -> list[str]:
    """Name the columns of a Parquet file, and those of its folders, `name=value`.

    Args:
        path: The file.
        base: The folder whose folders are columns, or None.

    Returns:
        The names; none if the file cannot be read, and Spark will report why.
    """
    from pyarrow import ArrowException, parquet

    try:
        return [*parquet.read_schema(path).names, *folders_below(base, [path])]
    except (ArrowException, OSError):
        return []


def base_of(source: Sequence[str], paths: Sequence[str]) -> str | None:
    """Find the folder whose folders `name=value` are columns.

    That is the part of a source before its first wildcard, or what several sources share.

    Args:
        source: Files, folders and patterns.
        paths: The files that were found.

    Returns:
        The folder; None if all sources are files, or if it has no such folders.
    """
    there = set(paths)
    at = [each if is_remote(each) else os.path.abspath(each) for each in source]
    if all(each in there for each in at):
        return None
    folders = [each.rpartition("/")[0] if each in there else _literal(each) for each in at]
    shared = folders[0].rstrip("/").split("/")
    for each in folders[1:]:
        parts = each.rstrip("/").split("/")
        same = [one == other for one, other in zip(shared, parts, strict=False)]
        shared = shared[: [*same, False].index(False)]
    base = "/".join(shared) or "/"
    if is_remote(source[0]) and len(shared) < _AUTHORITY:
        return None
    return base if folders_below(base, paths) else None


def folders_below(base: str | None, paths: Iterable[str]) -> list[str]:
    """Name the columns that folders `name=value` between a folder and files make."""
    if base is None:
        return []
    begin = base.rstrip("/") + "/"
    parts = (
        part
        for path in paths
        if path.startswith(begin)
        for part in path[len(begin) :].split("/")[:-1]
    )
    return list(dict.fromkeys(unquote(part.partition("=")[0]) for part in parts if "=" in part))


def not_columns(base: str | None, paths: Iterable[str]) -> list[str]:
    """List folders `name=value` of files that are no columns, because a source names them."""
    found = dict[str, None]()
    for path in paths:
        is_below = base is not None and path.startswith(base.rstrip("/") + "/")
        at = base if is_below and base is not None else path.rpartition("/")[0]
        found.update(dict.fromkeys(part for part in at.split("/") if _FOLDER.fullmatch(part)))
    return list(found)


def _literal(source: str) -> str:
    """Return the folders of a pattern before its first wildcard; or the whole of what is none."""
    parts = source.split("/")
    is_wild = [bool(re.search(r"[*?\[{]" if is_remote(source) else r"[*?\[]", p)) for p in parts]
    if os.path.isdir(source) or not any(is_wild):
        return source
    return "/".join(parts[: is_wild.index(True)]) or "/"


def _is_hidden(path: str) -> bool:
    return any(part[:1] in ("_", ".") for part in path.split("/"))


def _below(folder: Path) -> Iterable[str]:
    for at, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "_."]
        yield from (os.path.join(at, name) for name in names if name[0] not in "_.")


def expect_readable(path: str) -> None:
    """Refuse a file of this machine with a name that Spark cannot read.

    Raises:
        InvalidArgument: It has such a name.
    """
    name = os.path.basename(path)
    if name[:1] in ("_", ".") or name.endswith("._COPYING_"):
        raise InvalidArgument(
            f"{path} has a name that Spark ignores, as that of a file that is not complete: rename "
            "it, or leave it out"
        )
    if ":" in name:
        raise InvalidArgument(
            f"{path} has a colon in its name, and Spark reads no such file: rename it, or leave "
            "it out"
        )


def _look(path: str) -> SourceFile:
    expect_readable(path)
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise InvalidArgument(
            f"{path} is gone while it was to be imported: run the import again"
        ) from None
    except PermissionError as error:
        raise PermissionDenied(f"{path}: {error.strerror}: let this user read it") from None
    return SourceFile(path=path, size=found.st_size, mtime_ns=found.st_mtime_ns)


def form_of(paths: Sequence[str]) -> str:
    """Find the format of files by their names.

    Raises:
        InvalidArgument: A name shows no known format, or the files have several formats.
    """
    forms = {path: _form(path) for path in paths}
    strange = [path for path, form in forms.items() if form is None]
    if strange:
        raise InvalidArgument(
            f"{_some(strange)}: is no Parquet, CSV or JSON by its name: say which with format="
        )
    several = sorted({form for form in forms.values() if form})
    if len(several) > 1:
        raise InvalidArgument(
            f"the files are {' and '.join(several)}: import each format by itself"
        )
    return several[0]


def _form(path: str) -> str | None:
    name = path.lower()
    for packed in _PACKED:
        name = name.removesuffix(packed)
    return next((form for form, ends in _SUFFIXES.items() if name.endswith(ends)), None)


def _some(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED_MAX} more" if len(paths) > _NAMED_MAX else ""
    return ", ".join(paths[:_NAMED_MAX]) + more

"""The workflows of .github run the Makefile's targets, with few rights and pinned actions."""

import itertools
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import wheels
from house import ROOT

WORKFLOWS = {
    path.name: path.read_text() for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def steps(workflow: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield each step with its job."""
    for job in yaml.safe_load(workflow)["jobs"].values():
        yield from ((job, step) for step in job["steps"])


def targets(workflow: str) -> set[str]:
    """Name the targets that its steps make; for a target from a matrix, each value."""
    found = set[str]()
    for job, step in steps(workflow):
        for target in re.findall(r"\bmake ((?:[\w-]+|\$\{\{ [\w.]+ \}\})+)", step.get("run", "")):
            key = re.fullmatch(r"\$\{\{ matrix\.(\w+) \}\}", target)
            found |= set(job["strategy"]["matrix"][key[1]]) if key else {target}
    return found


def unknown(workflow: str) -> set[str]:
    """Name the targets that the Makefile does not have."""
    return targets(workflow) - TARGETS


def unpinned(workflow: str) -> list[str]:
    """List the actions without a pinned version: any code could run under their names."""
    used = [step["uses"] for _, step in steps(workflow) if "uses" in step]
    return [action for action in used if not re.search(r"@(v\d+(\.\d+)*|[0-9a-f]{40})$", action)]


def programs_missing(workflow: str) -> list[str]:
    """List the programs of the repository that a step runs and that do not exist."""
    text = "\n".join(str(step.get("run", "")) for _, step in steps(workflow))
    named = re.findall(r"(?<![\w./])((?:\.ci|tools)/[\w.-]+)", text)
    return [name for name in named if not (ROOT / name).is_file()]


def test_there_are_workflows_for_changes_wheels_and_pages() -> None:
    assert {"ci.yml", "wheels.yml", "docs.yml"} <= WORKFLOWS.keys()
    assert ".ci/run" in WORKFLOWS["ci.yml"]
    assert "make check" in (ROOT / ".ci/run").read_text()
    assert targets(WORKFLOWS["docs.yml"]) == {"docs"}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_what_a_workflow_makes_is_a_target(name: str) -> None:
    assert unknown(WORKFLOWS[name]) == set()


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actions_are_of_a_version(name: str) -> None:
    assert unpinned(WORKFLOWS[name]) == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_programs_that_a_workflow_runs_are_there(name: str) -> None:
    assert programs_missing(WORKFLOWS[name]) == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_only_read_and_each_job_has_an_end(name: str) -> None:
    workflow = yaml.safe_load(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"].values()
    assert all(job["timeout-minutes"] for job in jobs)
    writing = [job for job in jobs if "write" in job.get("permissions", {}).values()]
    assert all("environment" in job and "refs/" in job["if"] for job in writing)


def test_wheels_are_built_for_both_processors_and_both_c_libraries() -> None:
    workflow = yaml.safe_load(WORKFLOWS["wheels.yml"])
    matrix = workflow["jobs"]["wheels"]["strategy"]["matrix"]["include"]
    processors = {"x86_64", "aarch64"}
    assert {entry["processor"] for entry in matrix} == processors
    built = {(target.triple.split("-")[0], target.policy) for target in wheels.TARGETS}
    policies = {"manylinux_2_28", "musllinux_1_2"}
    assert built == set(itertools.product(processors, policies))
    support = (ROOT / "docs/support.md").read_text()
    assert all(policy in support for policy in policies)


def test_nothing_is_published_unless_all_wheels_are_there() -> None:
    publish = yaml.safe_load(WORKFLOWS["wheels.yml"])["jobs"]["publish"]
    (check,) = (step["run"] for step in publish["steps"] if "run" in step)
    assert check.count(f"= {len(wheels.TARGETS)}\n") == 2  # of the package and of the server
    assert publish["needs"] == "wheels"


def test_wheels_are_used_with_each_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    (setup,) = (
        step["with"]["python-version"].split()
        for _, step in steps(WORKFLOWS["wheels.yml"])
        if step.get("uses", "").startswith("actions/setup-python@")
    )
    assert setup == named
    support = (ROOT / "docs/support.md").read_text()
    assert f"CPython {', '.join(named)};" in support


def test_bad_workflows_are_complained_of() -> None:
    bad = """
jobs:
  a:
    strategy: { matrix: { target: [test, gone] } }
    steps:
      - uses: actions/checkout@main
      - run: make ${{ matrix.target }} && tools/nothing
      - run: make tset
"""
    assert unknown(bad) == {"gone", "tset"}
    assert unpinned(bad) == ["actions/checkout@main"]
    assert programs_missing(bad) == ["tools/nothing"]


def test_dependabot_looks_after_crates_packages_and_actions() -> None:
    updates = yaml.safe_load((ROOT / ".github/dependabot.yml").read_text())["updates"]
    kinds = {update["package-ecosystem"] for update in updates}
    assert kinds == {"cargo", "pip", "github-actions"}
    assert all((ROOT / update["directory"].strip("/")).is_dir() for update in updates)

"""The description of the API: it has all routes, and answers to what it allows are as it says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from house import ROOT
from server.doors import Server

ROUTES = ROOT / "rust/server/src/http/mod.rs"
CONFIG = """
[checks]
# The schema cannot say all rules of the engine, such as which headers go together.
positive_data_acceptance.enabled = false
negative_data_rejection.expected-statuses = [
    400, 401, 403, 404, 405, 406, 409, 410, 412, 413, 415, 416, 503,
]
"""
OPTIONS = ("--max-examples", "12", "--seed", "1")


def test_each_route_is_described_and_each_description_is_of_a_route(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        document = server.get("/openapi.json", token="").json
    assert document["openapi"].startswith("3.1")
    described = {path.split(":")[0] for path in document["paths"]}
    # A key of the place has slashes in it, which the description cannot say.
    routes = ROUTES.read_text().replace("{*", "{")
    assert described == set(re.findall(r'\.route\(\s*"([^"]+)"', routes))


@pytest.mark.timeout(300)  # half a minute each where the machine does nothing else
@pytest.mark.parametrize(
    ("which", "paths"),
    [
        ("--include-path-regex", "/v1/groups"),
        ("--include-path-regex", "/v1/topics"),
        ("--exclude-path-regex", "/v1/(groups|topics)"),
    ],
)
def test_requests_that_the_description_allows_are_answered_as_it_says(
    tmp_path: Path, which: str, paths: str
) -> None:
    with Server(tmp_path / "events", "--place", str(tmp_path / "place")) as server:
        document = server.get("/openapi.json", token="").json
        # Nothing waits for long, and no answer is without an end.
        read = document["paths"]["/v1/topics/{topic}/records"]["get"]
        (wait,) = (each for each in read["parameters"] if each.get("name") == "wait")
        wait["schema"] = {"type": "string", "enum": ["0ms", "20ms"]}
        document["components"]["schemas"]["Take"]["properties"]["wait"] = wait["schema"]
        objects = document["paths"]["/v1/place/{key}"]["get"]["parameters"]
        objects[0]["schema"] = wait["schema"]
        del read["responses"]["200"]["content"]["text/event-stream"]
        document["components"]["schemas"]["Poll"]["properties"]["wait"] = wait["schema"]
        # Lists of a thousand parts would take minutes to make.
        text = re.sub(r', "maxItems": \d+|"maxItems": \d+, ', "", json.dumps(document))
        (tmp_path / "openapi.json").write_text(text)
        (tmp_path / "schemathesis.toml").write_text(CONFIG)
        command = [str(Path(sys.executable).with_name("schemathesis")), "run", "openapi.json"]
        command += ["--url", f"http://127.0.0.1:{server.port}"]
        command += ["--header", f"Authorization: Bearer {server.token}", *OPTIONS]
        command += [which, paths]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr
        assert server.get("/healthz").status == 200


def test_a_method_that_is_not_allowed_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/topics/a/records", b"x")
        for method, path, allowed in (
            ("POST", "/v1/topics/a", "GET, HEAD, PUT, PATCH, DELETE"),
            ("PUT", "/v1/topics/a:finish", "POST"),
            ("GET", "/v1/topics/a:trim", "POST"),
            ("DELETE", "/v1/topics/a:compact", "POST"),
            ("DELETE", "/v1/topics", "GET,HEAD"),
        ):
            refused = server.request(method, path)
            assert (refused.status, refused.problem) == (405, "method-not-allowed"), path
            assert refused.headers["allow"] == allowed, path
        assert server.get("/v1/topics/a").json["finished"] is False


def test_a_body_that_lists_values_without_names_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path / "events") as server:
        server.post("/v1/topics/a/records", b"x")
        for method, path in (
            ("PATCH", "/v1/topics/a"),
            ("PUT", "/v1/topics/b"),
            ("POST", "/v1/topics/a:trim"),
        ):
            for body in (b"[null, null]", b'{"retention": [null, null]}'):
                refused = server.request(method, path, body)
                assert (refused.status, refused.problem) == (400, "bad-request"), (path, body)

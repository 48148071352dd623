"""The files in deploy/: each is accepted by what it is for, and they agree with each other."""

import http.client
import os
import re
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import trustme
import yaml

from house import ROOT
from server.doors import PROGRAM, Server

DEPLOY = ROOT / "deploy"
UNITS = DEPLOY / "systemd"


def manifest() -> dict[str, Any]:
    """Read the documents of the manifest by their kinds."""
    text = (DEPLOY / "kubernetes/falaj-server.yaml").read_text()
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def container() -> Any:
    (only,) = manifest()["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    return only


def shown(config: Path) -> "subprocess.CompletedProcess[str]":
    """Ask the server what it makes of a configuration."""
    command: list[str | Path] = [PROGRAM, "--config", config, "--print-config"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_manifest_has_the_shape_that_kubernetes_publishes() -> None:
    documents = manifest()
    assert sorted(documents) == ["ConfigMap", "Service", "StatefulSet"]
    for document in documents.values():
        kubernetes_validate.validate(document, "1.37", strict=True)
    spec = documents["StatefulSet"]["spec"] | {"replica": 2}
    mistaken = documents["StatefulSet"] | {"spec": spec}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(mistaken, "1.37", strict=True)


def test_the_server_takes_the_example_configurations(tmp_path: Path) -> None:
    mounted = tmp_path / "mounted.toml"
    mounted.write_text(manifest()["ConfigMap"]["data"]["server.toml"])
    for config in (DEPLOY / "server.toml", mounted):
        taken = shown(config)
        assert (taken.returncode, taken.stderr) == (0, ""), config
        assert 'http = "0.0.0.0:4437"' in taken.stdout
        assert 'format = "json"' in taken.stdout
    mounted.write_text(mounted.read_text().replace("principals", "principal"))
    refused = shown(mounted)
    assert refused.returncode != 0
    assert "principal" in refused.stderr


def test_what_the_manifest_mounts_is_what_its_configuration_names() -> None:
    config = manifest()["ConfigMap"]["data"]["server.toml"]
    mounts = [Path(mount["mountPath"]) for mount in container()["volumeMounts"]]
    for path in re.findall(r'"(/[^"]+)"', config):
        assert any(Path(path).is_relative_to(mount) for mount in mounts), path
    names = {
        volume["name"]
        for volume in manifest()["StatefulSet"]["spec"]["template"]["spec"]["volumes"]
    }
    claims = {
        claim["metadata"]["name"]
        for claim in manifest()["StatefulSet"]["spec"]["volumeClaimTemplates"]
    }
    assert {mount["name"] for mount in container()["volumeMounts"]} == names | claims
    (port,) = container()["ports"]
    assert f':{port["containerPort"]}"' in config
    assert manifest()["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    hosts = re.search(r"hosts = \[(.*)\]", config)
    assert hosts
    assert f'"{manifest()["Service"]["metadata"]["name"]}"' in hosts[1]


def test_the_image_runs_as_the_user_of_the_manifest_and_writes_where_the_volume_is() -> None:
    image = (DEPLOY / "docker/Dockerfile").read_text()
    pod = manifest()["StatefulSet"]["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {pod['runAsUser']}:{pod['runAsGroup']}\n" in image
    assert f"-o {pod['runAsUser']} -g {pod['runAsGroup']} /image/var/lib/falaj" in image
    assert "VOLUME /var/lib/falaj\n" in image
    assert "/var/lib/falaj" in [mount["mountPath"] for mount in container()["volumeMounts"]]


def test_the_image_is_built_from_no_more_than_the_server_needs(tmp_path: Path) -> None:
    image = (DEPLOY / "docker/Dockerfile").read_text()
    allowed = (DEPLOY / "docker/Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", image, re.MULTILINE)
    paths = [path for line in copied for path in line.split()]
    assert {f"!{path}" for path in paths} == {line for line in allowed if line.startswith("!")}
    ignored = shutil.ignore_patterns("target", "node_modules")
    for path in paths:
        source, copy = ROOT / path, tmp_path / path
        if source.is_dir():
            shutil.copytree(source, copy, ignore=ignored)
        else:
            shutil.copy(source, copy)
    # Cargo reads all manifests and the lock file, as it does before it compiles.
    command = [
        "cargo",
        "tree",
        "--locked",
        "--manifest-path",
        "rust/server/Cargo.toml",
        "--depth=1",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"falaj v[\d.]+ \(.*/rust/log\)", done.stdout)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="NOT RUN: no systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for unit in UNITS.iterdir():
        text = unit.read_text().replace("/usr/local/bin/falaj-server", str(PROGRAM))
        # Pages on the web are looked up.
        (tmp_path / unit.name).write_text(
            re.sub("^Documentation=.*\n", "", text, flags=re.MULTILINE)
        )
    units = [*map(str, sorted(tmp_path.iterdir()))]
    assert len(units) == 2
    command = ["systemd-analyze", "verify", "--man=no", *units]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "falaj" in line]
    assert (done.returncode, said) == (0, []), done.stderr
    (tmp_path / "falaj-server.service").write_text(
        (tmp_path / "falaj-server.service").read_text().replace("UMask=", "UMaks=")
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Unknown key 'UMaks'" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT RUN: only root becomes another user")
def test_the_server_runs_as_the_manifest_says_and_answers_its_probes() -> None:
    """The pod by hand: its user, its configuration, its files, and the probes of the kubelet."""
    with tempfile.TemporaryDirectory() as name:  # which that user may enter, as a pod's root
        Path(name).chmod(0o755)
        run_as_in_a_pod(Path(name))


def run_as_in_a_pod(root: Path) -> None:
    pod = manifest()["StatefulSet"]["spec"]["template"]["spec"]
    user = pod["securityContext"]["runAsUser"]
    state, etc = root / "state", root / "etc"
    for folder in (state, etc / "tls", etc / "principals"):
        folder.mkdir(parents=True)
    os.chown(state, user, user)
    maker = trustme.CA()
    made = maker.issue_cert("falaj-server", "127.0.0.1")
    (etc / "tls/tls.crt").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    (etc / "tls/tls.key").write_bytes(made.private_key_pem.bytes())
    shutil.copy(DEPLOY / "principals.toml", etc / "principals")
    config = etc / "server.toml"
    text = manifest()["ConfigMap"]["data"]["server.toml"]
    text = text.replace("/etc/falaj", str(etc)).replace("/var/lib/falaj", str(state))
    config.write_text(text)
    flags = ("--config", str(config), "--http", "0.0.0.0:0")
    program = root / "falaj-server"  # where that user may execute it
    shutil.copy(PROGRAM, program)
    server = Server(state / "events", *flags, user=user, program=program)
    # The kubelet looks at no certificate, and sends the address of the pod as `Host`.
    anyone = ssl.create_default_context()
    anyone.check_hostname, anyone.verify_mode = False, ssl.CERT_NONE
    with server:
        for probe in ("livenessProbe", "readinessProbe"):
            get = container()[probe]["httpGet"]
            assert get["scheme"] == "HTTPS"
            kubelet = http.client.HTTPSConnection("127.0.0.1", server.port, context=anyone)
            kubelet.request("GET", get["path"], headers={"Host": "10.1.2.3:4437"})
            assert kubelet.getresponse().status == 200, probe
            kubelet.close()
        trusting = ssl.create_default_context()
        maker.configure_trust(trusting)
        asked = server.request(
            "GET", "/v1/topics", token="f" * 64, tls=trusting, Host="falaj-server"
        )
        assert asked.status == 401
        foreign = server.request("GET", "/v1/topics", token="", tls=trusting, Host="evil.example")
        assert foreign.status != 200

"""TLS: a real certificate, its change while connections are open, and addresses beyond loopback."""

import contextlib
import http.client
import signal
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from server.doors import Server
from server.test_door import TOKENS, principals


class Certificate(NamedTuple):
    """Files of a certificate, and a client that trusts its maker alone."""

    flags: tuple[str, ...]
    client: ssl.SSLContext


def certificate(folder: Path) -> Certificate:
    """Write a new certificate for 127.0.0.1, by a maker of its own."""
    maker = trustme.CA()
    made = maker.issue_cert("127.0.0.1", "localhost")
    chain, key = folder / "chain.pem", folder / "key.pem"
    chain.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    key.write_bytes(made.private_key_pem.bytes())
    client = ssl.create_default_context()
    maker.configure_trust(client)
    return Certificate(("--tls-certificate", str(chain), "--tls-key", str(key)), client)


def test_a_client_that_trusts_the_certificate_speaks_either_http(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    with Server(tmp_path / "events", *made.flags) as server:
        sent = server.request("POST", "/v1/topics/a/records", b"x", tls=made.client)
        assert sent.status == 201
        made.client.set_alpn_protocols(["h2", "http/1.1"])
        with made.client.wrap_socket(server.socket(), server_hostname="127.0.0.1") as client:
            assert client.selected_alpn_protocol() == "h2"
            assert client.version() == "TLSv1.3"


def test_without_tls_or_without_trust_nothing_is_answered(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    with Server(tmp_path / "events", *made.flags) as server:
        with server.socket() as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"HTTP" not in client.recv(1 << 16)
        with pytest.raises(ssl.SSLCertVerificationError):
            server.request("GET", "/healthz", tls=ssl.create_default_context())


def test_a_client_that_begins_no_handshake_is_cut_off(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    flags = (*made.flags, "--limits-header-timeout", "300ms")
    with Server(tmp_path / "events", *flags) as server, server.socket() as client:
        assert client.recv(1) == b""


def asked(connection: http.client.HTTPConnection, path: str, token: str) -> int:
    """Ask over a connection that stays open; return the status."""
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_a_signal_brings_new_certificates_and_principals_to_connections_that_stay(
    tmp_path: Path,
) -> None:
    before, file = certificate(tmp_path), principals(tmp_path / "principals.toml")
    flags = (*before.flags, "--access-principals", str(file))
    with Server(tmp_path / "events", *flags) as server:
        open_since = server.connect(before.client)
        assert asked(open_since, "/v1/topics", TOKENS["viewer"]) == 200
        port = open_since.sock.getsockname()[1]
        after = certificate(tmp_path)
        file.write_text("")
        server.process.send_signal(signal.SIGHUP)
        server.until_said("certificates were read again")
        server.until_said("principals were read again")
        assert server.request("GET", "/healthz", tls=after.client).status == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            server.request("GET", "/healthz", tls=before.client)
        # The connection from before is the same one, with the principals of now.
        assert asked(open_since, "/v1/topics", TOKENS["viewer"]) == 401
        assert asked(open_since, "/v1/topics", server.token) == 200
        assert open_since.sock.getsockname()[1] == port
        (tmp_path / "chain.pem").write_text("no certificate\n")
        server.process.send_signal(signal.SIGHUP)
        assert "chain.pem" in server.until_said("certificates stay as they were")
        assert server.request("GET", "/healthz", tls=after.client).status == 200
        open_since.close()


@pytest.mark.parametrize("tls", [True, False])
def test_beyond_loopback_principals_come_in_and_the_stores_own_token_does_not(
    tmp_path: Path, tls: bool
) -> None:
    made, file = certificate(tmp_path), principals(tmp_path / "principals.toml")
    flags = made.flags if tls else ("--plaintext",)
    client = made.client if tls else None
    everywhere = ("--http", "0.0.0.0:0", "--access-principals", str(file))
    with Server(tmp_path / "events", *everywhere, *flags) as server:
        path = "/v1/topics"
        assert server.request("GET", path, token=TOKENS["viewer"], tls=client).status == 200
        refused = server.request("GET", path, token=server.token, tls=client)
        assert (refused.status, refused.problem) == (401, "unauthenticated")
        other = server.request("GET", path, token=TOKENS["viewer"], tls=client, Host="evil.example")
        assert (other.status, other.problem) == (421, "unknown-host")

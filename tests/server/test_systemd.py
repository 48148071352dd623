"""Readiness, a socket that outlives the server, an upgrade: the test plays systemd."""

import http.client
import signal
import socket
import threading
from pathlib import Path

import falaj
from server.doors import PATIENCE_S, Reply, Server

# LISTEN_PID is the process that execs; the socket gets the number that systemd gives it.
ACTIVATE = 'exec 3<&"$0" && LISTEN_PID=$$ LISTEN_FDS=1 exec "$@"'


def activated(store: Path, listener: socket.socket) -> Server:
    """Start a server with a socket that is open already."""
    number = listener.fileno()
    before = ("bash", "-c", ACTIVATE, str(number))
    return Server(store, "--http", "127.0.0.1:1", before=before, pass_fds=[number])


def test_the_service_manager_learns_when_the_server_is_ready_and_when_it_stops(
    tmp_path: Path,
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(PATIENCE_S)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        with Server(tmp_path / "events", env=env) as server:
            assert manager.recv(1 << 12).splitlines() == [b"READY=1"]
            assert server.get("/readyz").status == 200
            assert server.stop(signal.SIGTERM)[0] == 0
            assert manager.recv(1 << 12).splitlines() == [b"STOPPING=1"]


def test_a_server_takes_the_socket_that_the_service_manager_made(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with activated(tmp_path / "events", listener) as server:
            assert server.port == port
            assert server.get("/healthz").status == 200


def test_an_upgrade_with_a_kept_socket_drops_no_connection(tmp_path: Path) -> None:
    store = tmp_path / "events"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answers: list[Reply] = []
        with activated(store, listener) as first:
            first.post("/v1/topics/a/records", b"x")
            in_flight = threading.Thread(
                target=lambda: answers.append(first.get("/v1/topics/a/records?from=1&wait=60s"))
            )
            in_flight.start()
            while "falaj_server_followers 1" not in first.get("/metrics").body.decode():
                pass
            assert first.stop(signal.SIGTERM)[0] == 0
            in_flight.join()
            assert (answers[0].status, answers[0].json["next_offset"]) == (200, 1)
            # No server runs now; the client waits in the socket's queue.
            between = first.connect()
            between.request("GET", "/healthz")
        with activated(store, listener):
            assert between.getresponse().status == 200
            between.close()


def test_upgrades_under_load_drop_no_request(tmp_path: Path) -> None:
    store, clients, restarts = tmp_path / "events", 6, 4
    ended = threading.Event()
    sent: list[list[bytes]] = [[] for _ in range(clients)]
    failed: list[Exception] = []

    def send(client: int, server: Server) -> None:
        """Append until the test ends or a request fails; half of the clients keep a connection."""
        connection, head = server.connect(), {"Authorization": f"Bearer {server.token}"}
        while not (ended.is_set() or failed):
            value = b"%d-%d" % (client, len(sent[client]))
            try:
                connection.request("POST", "/v1/topics/a/records", value, head)
                reply = connection.getresponse()
                reply.read()
            except (OSError, http.client.HTTPException) as error:
                failed.append(error)
            else:
                sent[client].append(value)
                if reply.status != 201:
                    failed.append(AssertionError(reply.status))
            if client % 2:
                connection.close()  # the next request opens another one
        connection.close()

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        server = activated(store, listener)
        loads = [threading.Thread(target=send, args=(n, server)) for n in range(clients)]
        for load in loads:
            load.start()
        for _ in range(restarts):
            before = len(sent[0])
            while len(sent[0]) < before + 20 and not failed:
                ended.wait(0.01)
            assert server.stop(signal.SIGTERM)[0] == 0
            server = activated(store, listener)
        ended.set()
        for load in loads:
            load.join()
        server.stop()
    assert failed == []
    with falaj.open(store) as opened:
        stored = [bytes(record.value) for record in opened.topic("a")]
    assert sorted(stored) == sorted(value for each in sent for value in each)

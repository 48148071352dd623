"""moto as a server that takes one request at a time: `moto_in_turn.py PORT`.

moto looks whether an object exists, and then writes it. Between the two another thread may write,
so under load two creates of one key succeed. The probe found that. With requests in turn moto keeps
what the tests need; versitygw and azurite are raced as they are.
"""

import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

TURN = Lock()


def in_turn(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request while no other one is answered."""
    with TURN:
        return APPLICATION(environ, start)  # type: ignore[no-any-return]


APPLICATION = DomainDispatcherApplication(create_backend_app)

if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), in_turn, threaded=True)

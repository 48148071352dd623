"""The two drivers: they do the steps of an operation over httpx, with and without asyncio.

Owns the connections, and the threads or tasks of operations beside one. It knows no rule of the
API: which requests are sent, and how often, is the operations' business.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from socket import SHUT_RDWR, socket
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import httpx

from falaj_client._own_errors import named
from falaj_client._wire import Answer, Begin, Broken, Finish, Give, Open, Piece, Sent, Shut, Sleep
from falaj_client.errors import HandleClosed, InvalidArgument

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
    from typing import TypeAlias

    from falaj_client._wire import Call, Operation, Step

    #: Goes on with an operation once a step is done or has failed.
    Resume: TypeAlias = Callable[[Operation[Any]], Step]

T = TypeVar("T")

__all__ = ["AsyncDriver", "AsyncItems", "Driver", "Items"]

#: Before the request was sent, so the server cannot have done it.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


def _settings(url: str, token: str | None) -> dict[str, Any]:
    """Return the settings of an HTTP client for a server.

    Raises:
        InvalidArgument: The URL is none of a server.
    """
    if not isinstance(url, str):
        raise TypeError(f"the URL of a server is text, not {named(url)}")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # read here, since a number that is none is found then
        httpx.URL(f"{parts.scheme}://{parts.netloc}")
    except (ValueError, httpx.InvalidURL) as error:
        raise InvalidArgument(f"{named(url)} is no URL of a server: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(
            "connect() takes the URL of a server, such as http://127.0.0.1:4437, not "
            f"{named(url)}: for a directory call falaj.open()"
        )
    if parts.path not in ("", "/") or parts.query or parts.username:
        raise InvalidArgument(
            f"the URL of a server is its scheme, host and port alone, not {named(url)}: give a "
            "token as token="
        )
    headers = {"User-Agent": "falaj-client", "Accept": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    # An append waits for no free connection: as many as threads ask for. A proxy of the
    # environment is not asked for what is on this machine, and an answer from it is not compressed.
    is_here = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if is_here:
        headers["Accept-Encoding"] = "identity"
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    base = f"{parts.scheme}://{parts.netloc}"
    return {"base_url": base, "headers": headers, "limits": limits, "trust_env": not is_here}


def _request(client: Any, asked: Call, patience: float) -> httpx.Request:
    made: httpx.Request = client.build_request(
        asked.method,
        asked.target,
        headers=dict(asked.headers),
        content=asked.content or None,
        timeout=httpx.Timeout(patience, pool=None),
    )
    return made


def _broken(error: httpx.HTTPError) -> Broken:
    why = str(error) or type(error).__name__
    is_late = isinstance(error, httpx.ReadTimeout)
    return Broken(why, has_arrived=not isinstance(error, _NOT_SENT), is_late=is_late)


def _answer(response: httpx.Response, body: bytes) -> Answer:
    return Answer(response.status_code, response.headers, body)


def _closed() -> HandleClosed:
    return HandleClosed("the store was closed: connect to the server again")


def _sending(found: Any) -> Resume:
    return lambda operation: operation.send(found)


def _throwing(error: Exception) -> Resume:
    return lambda operation: operation.throw(error)


class Driver:
    """Does operations in the thread that calls it; threads may share it."""

    def __init__(self, url: str, token: str | None) -> None:
        self._client = httpx.Client(**_settings(url, token))
        self._closing = Event()
        self._wires = WeakSet[Any]()  # the network streams of all connections
        self._lock = Lock()  # of these

    @property
    def is_closed(self) -> bool:
        """True once it was closed: no operation begins any more, and those that run end."""
        return self._closing.is_set()

    def run(self, operation: Operation[T]) -> T:
        """Do an operation, and return its result.

        Raises:
            HandleClosed: It was closed before. If it is closed meanwhile, the operation gets this
                instead of its step's result.
        """
        stream = _Stream()
        try:
            if self.is_closed:
                raise _closed()
            step = next(operation)
            while True:
                step = self._outcome(step, stream)(operation)
        except StopIteration as ended:
            result: T = ended.value
            return result
        finally:
            operation.close()
            stream.close()

    def items(self, operation: Operation[Any]) -> Items[Any]:
        """Iterate over what an operation gives."""
        return Items(self, operation)

    def _outcome(self, step: Step, stream: _Stream) -> Resume:
        if self.is_closed:
            return _throwing(_closed())
        if isinstance(step, Finish):
            begun: _Beside = step.begun
            return begun.wait()
        try:
            return _sending(self._do(step, stream))
        except Exception as error:
            stream.close()
            if self._closing.is_set():  # meanwhile
                return _throwing(_closed())
            if isinstance(error, httpx.HTTPError):
                return _throwing(_broken(error))
            raise

    def _do(self, step: Step, stream: _Stream) -> Any:
        if isinstance(step, Sent):
            response = self._client.send(self._request(step))
            return _answer(response, response.content)
        if isinstance(step, Open):
            request = self._request(step)
            response = self._client.send(request, stream=True)
            request.extensions["timeout"]["read"] = step.read  # before its body is read
            if response.status_code >= 400:
                return _answer(response, response.read())
            stream.response, stream.pieces = response, response.iter_raw()
            return _answer(response, b"")
        if isinstance(step, Piece):
            return next(stream.pieces, b"")
        if isinstance(step, Begin):
            return _Beside(self, step.operation)
        if isinstance(step, Sleep):
            self._closing.wait(step.seconds)
        elif isinstance(step, Shut):
            stream.close()
        return None

    def _request(self, step: Sent | Open) -> httpx.Request:
        request = _request(self._client, step.call, step.patience)
        request.extensions["trace"] = self._traced
        return request

    def _traced(self, event: str, found: dict[str, Any]) -> None:
        """Note each connection: `close` wakes the threads that read from it."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._lock:
                self._wires.add(found["return_value"])
            if self.is_closed:
                self._shut()

    def _shut(self) -> None:
        with self._lock:
            wires = list(self._wires)
        for wire in wires:
            # The end of a file wakes a thread that reads. To close the socket does not.
            with suppress(OSError):  # it ended by itself
                socket.shutdown(wire.get_extra_info("socket"), SHUT_RDWR)

    def close(self) -> None:
        """Close all connections, and end the calls that wait."""
        self._closing.set()
        self._shut()
        self._client.close()


class _Beside:
    """An operation in a thread of its own, which outlives nothing: the program may end."""

    def __init__(self, driver: Driver, operation: Operation[Any]) -> None:
        self._driver, self._operation = driver, operation
        self._resume: Resume = _sending(None)
        self._thread = Thread(target=self._do, name="falaj-page", daemon=True)
        self._thread.start()

    def _do(self) -> None:
        try:
            self._resume = _sending(self._driver.run(self._operation))
        except Exception as error:  # noqa: BLE001  # thrown into the operation that waits for it
            self._resume = _throwing(error)

    def wait(self) -> Resume:
        """Wait for its end, and return what goes on with the operation that began it."""
        self._thread.join()
        return self._resume


class _Stream:
    """The open answer of an operation."""

    def __init__(self) -> None:
        self.response: httpx.Response | None = None
        self.pieces: Iterator[bytes] = iter(())

    def close(self) -> None:
        if self.response is not None:
            self.response.close()
            self.response, self.pieces = None, iter(())


class Items(Generic[T]):
    """Iterates over the items that an operation gives; closing it ends its request."""

    def __init__(self, driver: Driver, operation: Operation[Any]) -> None:
        self._driver, self._operation, self._stream = driver, operation, _Stream()
        self._step: Step | None = None
        self._given: Iterator[T] = iter(())
        self._is_begun = False

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        while True:
            if self._driver.is_closed:
                self.close()
                raise StopIteration if self._is_begun else _closed()
            self._is_begun = True
            for item in self._given:
                return item
            step = self._step
            self._step = None
            try:
                resume: Resume = next
                if step is not None and not isinstance(step, Give):
                    resume = self._driver._outcome(step, self._stream)
                found = resume(self._operation)
            except HandleClosed:
                self._stream.close()
                raise StopIteration from None
            except BaseException:
                self._stream.close()
                raise
            self._step = found
            if isinstance(found, Give):
                self._given = iter(found.items)

    def close(self) -> None:
        """End it."""
        self._operation.close()
        self._stream.close()
        self._given = iter(())

    def __enter__(self) -> Items[T]:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncDriver:
    """Does operations in the task that awaits them."""

    def __init__(self, url: str, token: str | None) -> None:
        self._client = httpx.AsyncClient(**_settings(url, token))
        self._closing = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """True once it was closed; as `Driver.is_closed`."""
        return self._closing.is_set()

    async def run(self, operation: Operation[T]) -> T:
        """Do an operation, and return its result; as `Driver.run`."""
        stream = _AsyncStream()
        try:
            if self.is_closed:
                raise _closed()
            step = next(operation)
            while True:
                resume = await self._outcome(step, stream)
                step = resume(operation)
        except StopIteration as ended:
            result: T = ended.value
            return result
        finally:
            operation.close()
            await stream.end()

    def items(self, operation: Operation[Any]) -> AsyncItems[Any]:
        """Iterate over what an operation gives."""
        return AsyncItems(self, operation)

    async def _outcome(self, step: Step, stream: _AsyncStream) -> Resume:
        if self.is_closed:
            return _throwing(_closed())
        if isinstance(step, Finish):
            return await _finished(step.begun)
        try:
            return _sending(await self._do(step, stream))
        except Exception as error:
            await stream.close()
            if self._closing.is_set():  # meanwhile
                return _throwing(_closed())
            if isinstance(error, httpx.HTTPError):
                return _throwing(_broken(error))
            raise

    async def _do(self, step: Step, stream: _AsyncStream) -> Any:
        if isinstance(step, Sent):
            response = await self._client.send(_request(self._client, step.call, step.patience))
            return _answer(response, response.content)
        if isinstance(step, Open):
            request = _request(self._client, step.call, step.patience)
            response = await self._client.send(request, stream=True)
            request.extensions["timeout"]["read"] = step.read  # before its body is read
            if response.status_code >= 400:
                return _answer(response, await response.aread())
            stream.response, stream.pieces = response, response.aiter_raw()
            return _answer(response, b"")
        if isinstance(step, Piece):
            return b"" if stream.pieces is None else await anext(stream.pieces, b"")
        if isinstance(step, Begin):
            return stream.begin(self.run(step.operation))
        if isinstance(step, Sleep):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), step.seconds)
        elif isinstance(step, Shut):
            await stream.close()
        return None

    async def close(self) -> None:
        """Close all connections, and end the calls that wait."""
        self._closing.set()
        await self._client.aclose()


async def _finished(begun: asyncio.Task[Any]) -> Resume:
    try:
        return _sending(await begun)
    except Exception as error:  # noqa: BLE001  # thrown into the operation that waits for it
        return _throwing(error)


class _AsyncStream:
    """The open answer of an operation, and what it began beside it."""

    def __init__(self) -> None:
        self.response: httpx.Response | None = None
        self.pieces: AsyncIterator[bytes] | None = None
        self._begun = set[asyncio.Task[Any]]()

    def begin(self, running: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task, which ends with the operation."""
        task = asyncio.ensure_future(running)
        self._begun.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._begun.discard(task)
        if not task.cancelled():
            task.exception()  # an iteration that ended early asks for no result

    async def end(self) -> None:
        """Close the answer, and end what was begun."""
        begun = list(self._begun)
        for task in begun:
            task.cancel()
        await asyncio.gather(*begun, return_exceptions=True)
        await self.close()

    async def close(self) -> None:
        if self.response is not None:
            await self.response.aclose()
            self.response, self.pieces = None, None


class AsyncItems(Generic[T]):
    """Iterates likewise, for `async for`; closing it ends its request."""

    def __init__(self, driver: AsyncDriver, operation: Operation[Any]) -> None:
        self._driver, self._operation, self._stream = driver, operation, _AsyncStream()
        self._step: Step | None = None
        self._given: Iterator[T] = iter(())
        self._is_begun = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while True:
            if self._driver.is_closed:
                await self.close()
                raise StopAsyncIteration if self._is_begun else _closed()
            self._is_begun = True
            for item in self._given:
                return item
            step = self._step
            self._step = None
            try:
                resume: Resume = next
                if step is not None and not isinstance(step, Give):
                    resume = await self._driver._outcome(step, self._stream)
                found = resume(self._operation)
            except (StopIteration, HandleClosed):
                await self._stream.end()
                raise StopAsyncIteration from None
            except BaseException:
                await self._stream.end()
                raise
            self._step = found
            if isinstance(found, Give):
                self._given = iter(found.items)

    async def close(self) -> None:
        """End it."""
        self._operation.close()
        await self._stream.end()
        self._given = iter(())

    async def __aenter__(self) -> AsyncItems[T]:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

"""The HTTP service of the active party."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from cutlayer.errors import CutlayerError
from cutlayer.version import __version__
from cutlayer_serve.callers import Caller, CallerRefused, Callers
from cutlayer_serve.peers import Peers
from cutlayer_serve.rollover import LoadRequest, Rollover, SwitchRequest
from cutlayer_serve.schema import PredictAnswer, PredictRequest, Problem
from cutlayer_serve.service import PredictionService
from cutlayer_serve.state import missing_parties, openapi_of, schema_of, state_of

if TYPE_CHECKING:
    from cutlayer_serve.telemetry import Telemetry

logger = logging.getLogger(__name__)

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)
_DIGITS = 18
"""More digits of a length than any body has, and fewer than Python refuses to read as a number."""
_MAX_REPEATED_LENGTH = 200
"""Most characters of a request that an error repeats."""
BODY_SECONDS = 10.0
"""Seconds within which the body of a request must arrive."""
_HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
_JSON_HEADERS = [
    (name.lower().encode(), value.encode()) for name, value in {"Content-Type": "application/json", **_HEADERS}.items()
]
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "the caller left before the end of the body",
        401: "no key, or an unknown one",
        403: "a limit of releases or of the caller is reached, or the caller may not ask this",
        404: "a required party has no row of an id, or there is no such version",
        408: "the body did not arrive in time",
        409: "a version that cannot be loaded, switched to or unloaded",
        413: "too many rows or bytes",
        422: "a request that is not valid",
        429: "too many rows a minute",
        503: "a required party, or every party, is absent",
    }.items()
}

_NOT_READY = {503: {"description": "a required party, or every party, is absent"}}


def build_app(service: PredictionService, peers: Peers, callers: Callers) -> FastAPI:
    """The application.

    Args:
        service: Answers requests.
        peers: The passive parties' streams.
        callers: Who may ask.
    """
    versions = service.versions
    guard = _Guard(service, callers, _telemetry(service, peers) if service.config.telemetry else None)
    rollover = Rollover(service.versions, peers)
    predict = guard.posted(service.predict)

    async def metrics(_request: Request, _caller: Caller) -> Response:
        content = service.metrics.text(versions.current.model, peers)
        return Response(content, media_type="text/plain; version=0.0.4", headers=_HEADERS)

    async def healthy() -> Response:
        return _json(200, {"status": "ok"})

    async def ready(request: Request) -> Response:
        missing = missing_parties(versions.current.model, peers)
        answer: dict[str, Any] = {"status": "not ready" if missing else "ready"}
        named = callers.known(request.headers) is not None  # a probe without a key learns no names
        return _json(503 if missing else 200, {**answer, "missing": missing} if named else answer)

    async def described(request: Request) -> Response:
        caller = callers.known(request.headers)
        general = app.openapi()
        if caller is None or caller.config.may == "metrics":  # names of columns are for those who may ask
            return _json(200, general)
        return _json(200, openapi_of(versions.current.model, general))

    app = _Application(predict)
    app.add_exception_handler(Exception, _fault)
    app.add_exception_handler(HTTPException, _http_error)
    prediction = {"response_model": PredictAnswer, "summary": "Predict rows with whoever answers in time"}
    for path, handler, kind, about in (
        ("/v1/predict", predict, PredictRequest, prediction),
        ("/v1/admin/load", guard.posted(rollover.load), LoadRequest, {"summary": "Load a version"}),
        ("/v1/admin/switch", guard.posted(rollover.switch), SwitchRequest, {"summary": "Switch a version"}),
        ("/v1/admin/unload", guard.posted(rollover.unload), SwitchRequest, {"summary": "Unload a version"}),
    ):
        app.add_api_route(path, handler, methods=["POST"], openapi_extra=_body_of(kind), responses=_ERRORS, **about)
    status = guard.shown(lambda: state_of(versions, peers), predicts=False)
    schema = guard.shown(lambda: schema_of(versions.current.model))
    shown: tuple[tuple[str, Callable[..., Awaitable[Response]], dict[str, Any]], ...] = (
        ("/v1/status", status, {"summary": "Parties, versions and latency"}),
        ("/v1/schema", schema, {"summary": "Columns of the active party"}),
        ("/healthz", healthy, {"summary": "Whether the process answers"}),
        ("/readyz", ready, {"responses": _NOT_READY, "summary": "Whether requests can be answered"}),
        (
            "/metrics",
            guard(metrics, predicts=False),
            {"response_class": PlainTextResponse, "summary": "Metrics in the text format of Prometheus"},
        ),
        ("/openapi.json", described, {"include_in_schema": False}),
        ("/", _asset("page.html", "text/html"), {"include_in_schema": False}),
        ("/page.js", _asset("page.js", "text/javascript"), {"include_in_schema": False}),
        ("/page.css", _asset("page.css", "text/css"), {"include_in_schema": False}),
    )
    for path, handler, about in shown:
        app.add_api_route(path, handler, methods=["GET"], **about)
    return app


def _telemetry(service: PredictionService, peers: Peers) -> Telemetry:
    """Spans and metrics of the service, where the extra is installed."""
    from cutlayer_serve.telemetry import Telemetry

    made = Telemetry(lambda: service.metrics.collected(service.versions.current.model, peers))
    service.metrics.noted = made.answered
    return made


Handler = Callable[[Request, Caller], Awaitable[Response]]


class _Application(FastAPI):
    """Answers requests for predictions without the framework, which took a third of the time of a small answer.

    The route of the same path describes them.

    Args:
        predict: The handler.
    """

    def __init__(self, predict: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(title="Cutlayer", version=__version__, openapi_url=None)
        self._predict = predict

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and scope["path"] == "/v1/predict" and scope["method"] == "POST":
            request = Request(scope, receive)
            try:
                response = await self._predict(request)
            except Exception as failure:
                logger.exception("a request failed")
                response = await _fault(request, failure)
            await response(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


class _Guard:
    """Makes routes that know their caller, and answer refusals and errors as problems.

    Each returns a whole response, so that no framework validates it again.
    """

    def __init__(self, service: PredictionService, callers: Callers, telemetry: Telemetry | None) -> None:
        self._metrics = service.metrics
        self._telemetry = telemetry
        self._callers = callers
        self._max_bytes = service.config.http.max_bytes

    def __call__(self, handle: Handler, *, predicts: bool = True) -> Callable[[Request], Awaitable[Response]]:
        """The route of a handler, for callers who may predict, or for all with a key."""

        async def respond(request: Request) -> Response:
            return await self._answer(request, handle, predicts)

        return respond

    def posted(self, handle: Callable[[bytes, Caller], Awaitable[Any]]) -> Callable[[Request], Awaitable[Response]]:
        """The route of what answers a body."""

        async def answer(request: Request, caller: Caller) -> Response:
            return _json(200, await handle(await _body(request, self._max_bytes), caller))

        return self(answer)

    def shown(self, value: Callable[[], Any], *, predicts: bool = True) -> Callable[[Request], Awaitable[Response]]:
        """The route of a value that is computed when it is asked for."""

        async def answer(_request: Request, _caller: Caller) -> Response:
            return _json(200, value())

        return self(answer, predicts=predicts)

    async def _answer(self, request: Request, handle: Handler, predicts: bool) -> Response:
        if self._telemetry is None or not predicts:
            return await self._answered(request, handle, predicts)
        with self._telemetry.request(request.headers) as span:
            response = await self._answered(request, handle, predicts)
            span.set_attribute("http.response.status_code", response.status_code)
        return response

    async def _answered(self, request: Request, handle: Handler, predicts: bool) -> Response:
        try:
            caller = self._callers.admit(request.headers, predicts=predicts)
            response = await handle(request, caller)
        except CallerRefused as refused:
            response = _problem(refused.status, str(refused))
            if refused.wait:
                response.headers["Retry-After"] = str(int(refused.wait) + 1)
            if refused.status == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
        except CutlayerError as failure:
            response = _problem(503, str(failure))
        self._metrics.responded(response.status_code)
        return response


def _body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a body that the handler reads itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


async def _body(request: Request, max_bytes: int) -> bytes:
    """The body, up to a size; more is refused before it is read.

    Raises:
        Refused: The body is larger, or does not come.
    """
    stated = request.headers.get("content-length", "")
    too_large = CallerRefused(413, f"expected a body of at most {max_bytes:,} bytes, got more")
    if stated.isdecimal() and (len(stated) > _DIGITS or int(stated) > max_bytes):
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                body += part
                if len(body) > max_bytes:
                    raise too_large
    except ClientDisconnect:
        raise CallerRefused(400, "the caller left before the end of the body") from None
    except TimeoutError:
        raise CallerRefused(408, f"expected the body within {BODY_SECONDS:g} seconds") from None
    return bytes(body)


def _asset(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = resources.files("cutlayer_serve").joinpath("page", name).read_bytes()

    async def respond() -> Response:
        return Response(content, media_type=kind, headers={**_HEADERS, "Content-Security-Policy": _POLICY})

    return respond


class _JsonResponse(Response):
    """A response whose headers are known but for its length."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Take the headers of every answer."""
        self.raw_headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(self.body))]


def _json(status: int, value: Any) -> Response:
    return _JsonResponse(to_json(value, inf_nan_mode="null"), status)


def _problem(status: int, why: str) -> Response:
    return _json(status, {"error": why.encode(errors="backslashreplace").decode()})


async def _fault(_request: Request, failure: Exception) -> Response:
    return _problem(500, f"a fault of cutlayer itself: {type(failure).__name__}")


async def _http_error(request: Request, failure: Any) -> Response:
    requested = f"{request.method} {request.url.path}"[:_MAX_REPEATED_LENGTH]
    if failure.status_code == 404:
        return _problem(404, f"expected a path of this service, got {requested}; /openapi.json lists them")
    if failure.status_code == 405:
        allowed = (failure.headers or {}).get("Allow", "another method")
        response = _problem(
            405, f"expected {allowed} {request.url.path}"[:_MAX_REPEATED_LENGTH] + f", got {request.method}"
        )
        response.headers["Allow"] = allowed
        return response
    return _problem(failure.status_code, str(failure.detail))

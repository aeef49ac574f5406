"""The HTTP service of the active party."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from cutlayer.errors import CutlayerError
from cutlayer.serving.online.callers import Caller, Callers, Refused
from cutlayer.serving.online.peers import Peers
from cutlayer.serving.online.rollover import LoadRequest, Rollover, SwitchRequest
from cutlayer.serving.online.schema import PredictAnswer, PredictRequest, Problem
from cutlayer.serving.online.service import PredictionService
from cutlayer.serving.online.state import missing_of, schema_of, state_of
from cutlayer.version import __version__

logger = logging.getLogger(__name__)

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"
)
_DIGITS = 18
"""More digits of a length than any body has, and fewer than Python refuses to read as a number."""
_MAX_ASKED = 200
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
        403: "a limit of releases or of the caller is reached",
        404: "unknown ids",
        408: "the body did not arrive in time",
        409: "a version that cannot be loaded, switched to or unloaded",
        413: "too many rows or bytes",
        422: "a request that is not valid",
        429: "too many rows a minute",
        503: "a required party, or every party, is absent",
    }.items()
}


def build_app(service: PredictionService, peers: Peers, callers: Callers) -> FastAPI:
    """The application.

    Args:
        service: Answers requests.
        peers: The passive parties' streams.
        callers: Who may ask.
    """
    routes = _Routes(service, peers, callers)
    predict = routes.guarded(routes.predict)
    app = _Application(predict)
    app.add_exception_handler(Exception, _fault)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_api_route(
        "/v1/predict",
        predict,
        methods=["POST"],
        response_model=PredictAnswer,
        responses=_ERRORS,
        openapi_extra=_body_of(PredictRequest),
        summary="Predict rows with whoever answers in time",
    )
    status, schema = routes.guarded(routes.status), routes.guarded(routes.schema)
    app.add_api_route("/v1/status", status, methods=["GET"], summary="Parties, versions and latency")
    app.add_api_route("/v1/schema", schema, methods=["GET"], summary="Columns of the active party")
    rollover = Rollover(service.versions, peers)
    for name, handle, kind in (
        ("load", rollover.load, LoadRequest),
        ("switch", rollover.switch, SwitchRequest),
        ("unload", rollover.unload, SwitchRequest),
    ):
        app.add_api_route(
            f"/v1/admin/{name}",
            routes.guarded(routes.admin(handle)),
            methods=["POST"],
            openapi_extra=_body_of(kind),
            responses=_ERRORS,
            summary=f"{name.capitalize()} a version",
        )
    app.add_api_route("/healthz", routes.healthy, methods=["GET"], summary="Whether the process answers")
    not_ready: dict[int | str, dict[str, Any]] = {503: {"description": "a required party, or every party, is absent"}}
    app.add_api_route(
        "/readyz", routes.ready, methods=["GET"], responses=not_ready, summary="Whether requests can be answered"
    )
    app.add_api_route(
        "/metrics",
        routes.guarded(routes.metrics),
        methods=["GET"],
        response_class=PlainTextResponse,
        summary="Metrics in the text format of Prometheus",
    )
    for path, name, media in (
        ("/", "page.html", "text/html"),
        ("/page.js", "page.js", "text/javascript"),
        ("/page.css", "page.css", "text/css"),
    ):
        app.add_api_route(path, _asset(name, media), methods=["GET"], include_in_schema=False)
    return app


Handler = Callable[[Request, Caller], Awaitable[Response]]


class _Application(FastAPI):
    """Answers requests for predictions without the framework, which took a third of the time of a small answer.

    The route of the same path describes them.

    Args:
        predict: The handler.
    """

    def __init__(self, predict: Callable[[Request], Awaitable[Response]]) -> None:
        super().__init__(title="Cutlayer", version=__version__, docs_url=None, redoc_url=None)
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


class _Routes:
    """The handlers; each returns a whole response, so that no framework validates it again."""

    def __init__(self, service: PredictionService, peers: Peers, callers: Callers) -> None:
        self._service, self._peers, self._callers = service, peers, callers

    def guarded(self, handle: Handler) -> Callable[[Request], Awaitable[Response]]:
        """A route that knows its caller, and answers refusals and errors as problems."""

        async def respond(request: Request) -> Response:
            return await self._answer(request, handle)

        return respond

    async def predict(self, request: Request, caller: Caller) -> Response:
        """Predict rows."""
        body = await _body(request, self._service.config.http.max_bytes)
        return _json(200, await self._service.predict(body, caller))

    def admin(self, handle: Callable[[bytes, Caller], Awaitable[dict[str, Any]]]) -> Handler:
        """A handler for admins."""

        async def change(request: Request, caller: Caller) -> Response:
            return _json(200, await handle(await _body(request, self._service.config.http.max_bytes), caller))

        return change

    async def status(self, _request: Request, _caller: Caller) -> Response:
        """State of the service."""
        return _json(200, state_of(self._service.versions, self._peers))

    async def schema(self, _request: Request, _caller: Caller) -> Response:
        """Columns that a request may give."""
        return _json(200, schema_of(self._service.versions.current.model))

    async def metrics(self, _request: Request, _caller: Caller) -> Response:
        """Metrics."""
        content = self._service.metrics.text(self._service.versions.current.model, self._peers)
        return Response(content, media_type="text/plain; version=0.0.4", headers=_HEADERS)

    async def healthy(self) -> Response:
        """Always 200."""
        return _json(200, {"status": "ok"})

    async def ready(self) -> Response:
        """200 where every required party is connected, and anybody contributes; else 503."""
        missing = missing_of(self._service.versions.current.model, self._peers)
        return _json(503 if missing else 200, {"status": "not ready" if missing else "ready", "missing": missing})

    async def _answer(self, request: Request, handle: Handler) -> Response:
        try:
            headers = _headers(request.scope)
            self._callers.check_local(headers.get("host", ""), headers.get("origin"))
            caller = self._callers.find(headers.get("authorization"), headers.get("x-api-key"))
            response = await handle(request, caller)
        except Refused as refused:
            response = _problem(refused.status, str(refused))
            if refused.wait:
                response.headers["Retry-After"] = str(int(refused.wait) + 1)
            if refused.status == 401:
                response.headers["WWW-Authenticate"] = "Bearer"
        except CutlayerError as failure:
            response = _problem(503, str(failure))
        self._service.metrics.responded(response.status_code)
        return response


def _body_of(kind: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a body that the handler reads itself."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": kind.model_json_schema()}}}}


async def _body(request: Request, max_bytes: int) -> bytes:
    """The body, up to a size; more is refused before it is read.

    Raises:
        Refused: The body is larger, or does not come.
    """
    stated = _headers(request.scope).get("content-length", "")
    too_large = Refused(413, f"expected a body of at most {max_bytes:,} bytes, got more")
    if stated.isdecimal() and (len(stated) > _DIGITS or int(stated) > max_bytes):
        raise too_large
    parts, size, more = [], 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "the caller left before the end of the body")
                part, more = message.get("body", b""), message.get("more_body", False)
                size += len(part)
                if size > max_bytes:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise Refused(408, f"expected the body within {BODY_SECONDS:g} seconds") from None
    return b"".join(parts)


def _asset(name: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = resources.files("cutlayer.serving.online").joinpath("page", name).read_bytes()

    async def respond() -> Response:
        return Response(content, media_type=kind, headers={**_HEADERS, "Content-Security-Policy": _POLICY})

    return respond


class _JsonResponse(Response):
    """A response whose headers are known but for its length."""

    def init_headers(self, headers: Mapping[str, str] | None = None) -> None:
        """Take the headers of every answer."""
        self.raw_headers = [*_JSON_HEADERS, (b"content-length", b"%d" % len(self.body))]


def _headers(scope: Scope) -> dict[str, str]:
    """The headers of a request by name; of several of one name the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def _json(status: int, value: Any) -> Response:
    return _JsonResponse(to_json(value, inf_nan_mode="null"), status)


def _problem(status: int, why: str) -> Response:
    return _json(status, {"error": why.encode(errors="backslashreplace").decode()})


async def _fault(_request: Request, failure: Exception) -> Response:
    return _problem(500, f"a fault of cutlayer itself: {type(failure).__name__}")


async def _http_error(request: Request, failure: Any) -> Response:
    requested = f"{request.method} {request.url.path}"[:_MAX_ASKED]
    if failure.status_code == 404:
        return _problem(404, f"expected a path of this service, got {requested}; /openapi.json lists them")
    if failure.status_code == 405:
        allowed = (failure.headers or {}).get("Allow", "another method")
        response = _problem(405, f"expected {allowed} {request.url.path}"[:_MAX_ASKED] + f", got {request.method}")
        response.headers["Allow"] = allowed
        return response
    return _problem(failure.status_code, str(failure.detail))

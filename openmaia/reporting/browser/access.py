"""Lets only those read the pages of `openmaia view` who know its token, because other users share the machine's ports."""

import hashlib
import secrets
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>openmaia view: token needed</title>
<body style="font: 1rem/1.5 system-ui, sans-serif; max-width: 40rem; margin: 4rem auto; padding: 0 1rem">
<h1>This address needs a token</h1>
<p>Other users of this machine can reach its ports, so that these pages are shown only to those who have the token.
<code>openmaia view</code> printed the whole address in the terminal where it runs; it ends with <code>?token=…</code>
Open that address once in this browser, or enter the token:</p>
<form method="get" action="/"><input name="token" aria-label="token" autocomplete="off" size="40"> <button>Open</button></form>
</body></html>"""


class TokenAccess:
    """ASGI middleware that refuses HTTP requests without the token.

    The token is in the query (`?token=…`), in the header `Authorization: Bearer …`, or in a cookie. A browser that opens an address with the token gets the
    cookie, and is sent on to the same address without the token, which then is in no link that a user copies.
    """

    def __init__(self, app: ASGIApp, token: str, headers: dict[str, str]):
        self._app, self._token, self._headers = app, token, headers
        # Cookies belong to a host, not to a port: two servers need two names.
        self._cookie = f"openmaia-{hashlib.sha256(token.encode()).hexdigest()[:12]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answer(Request(scope)) if scope["type"] == "http" else self._app
        await answer(scope, receive, send)

    def _answer(self, request: Request) -> ASGIApp:
        if self._is_token(request.query_params.get("token", "")):
            is_browser = "text/html" in request.headers.get("accept", "")
            return self._without_token(request) if is_browser else self._app
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(given):
            return self._app
        if self._is_token(request.cookies.get(self._cookie, "")):
            return self._app
        return Response(_PAGE, 403, self._headers, "text/html")

    def _is_token(self, given: str) -> bool:
        return secrets.compare_digest(given.encode("utf-8", "replace"), self._token.encode())

    def _without_token(self, request: Request) -> Response:
        rest = urlencode([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        path = "/" + quote(request.scope["path"].lstrip("/"))  # "//host" would lead to another host
        response = RedirectResponse(f"{path}?{rest}" if rest else path, 303, self._headers)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="lax")
        return response

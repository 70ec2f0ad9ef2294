"""Requests of our own pages in a browser: how the ring recognizes them, and how a person logs in.

    X-Requested-By             pages send it with every request. A form cannot, nor a page of another site
    Sec-Fetch-Site             same-origin: the browser says so, also of requests to which a page can add no header
    Cookie: NAME=TOKEN         the token of a person who logged in, where no Authorization header is

A browser sends a cookie with requests that its user did not mean. Hence it is SameSite=Strict, and with it a change
needs X-Requested-By as well. No script can read it (HttpOnly).
"""

from __future__ import annotations

from starlette.datastructures import Headers

HEADER = "x-requested-by"
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
#: Characters of Cookie headers that are read: a browser sends the cookies of other ports of its host, too.
_COOKIES_MAX = 16_384


def is_page(headers: Headers) -> bool:
    """Return whether a page of ours makes the request. A program that claims so shares the limits of pages."""
    return HEADER in headers or headers.get("sec-fetch-site") == "same-origin"


def token_of(headers: Headers, name: str) -> str:
    """Return the token in the cookie of this name; empty if there is none, or more than one."""
    text = ";".join(headers.getlist("cookie"))
    if not name or len(text) > _COOKIES_MAX:
        return ""
    pairs = (each.strip().partition("=") for each in text.split(";"))
    found = [value for each, _, value in pairs if each == name]
    return found[0] if len(found) == 1 else ""


def cookie(name: str, token: str, *, path: str, is_secure: bool) -> str:
    """Return the Set-Cookie header that keeps a token until the browser ends; an empty token deletes it."""
    age = "" if token else "; Max-Age=0"
    return f"{name}={token}; Path={path}{age}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"

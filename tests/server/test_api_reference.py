"""The page docs/reference/http.md equals the server's description of its routes. `python -m tests.server.test_api_reference` writes it again."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from headrace.errors import UserError
from headrace.server.access import Access
from headrace.server.application import application
from headrace.server.following import Publications
from headrace.server.open_or_connect import open_hub
from headrace.server.problems import problem_of
from headrace.server.security.permissions import Limits
from headrace.server.security.roots import Roots

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"
HEAD = """# HTTP

Written from `/openapi.json` by `python -m tests.server.test_api_reference`. [The guide](../guide/run-it-as-a-service.md) has examples. A token is sent
as `Authorization: Bearer TOKEN`; over the socket in the home none is needed. Answers are JSON, and tables are an Arrow stream with
`Accept: application/vnd.apache.arrow.stream`.

A problem is `{"error": {"message", "line", "column", "width", "remedy"}}`. `line` and `column` count from 1, and are null where there is no place in a
text.

| Status | Meaning |
|---|---|
| 400 | a mistake in the request or in a statement |
| 401, 403 | no token; one that is not valid, has expired, or may not do this |
| 404, 409 | no such name, or one of another owner; the name is taken, or the key was used for another request |
| 408, 413, 415 | a body that stops, is too large, or of a form that is not understood |
| 429 | more rows than the owner may push in a second; `Retry-After` has the seconds |
| 503 | the disk or the engine does not take it now: the request can be repeated |

A name in a path is percent-encoded: that of the query `a/b` is `a%2Fb`, and `..` is `%2E%2E`, which clients as curl (without `--path-as-is`) and browsers
would remove from the path.

`GET /v1/queries/{name}/follow` is also a WebSocket: `{"credits": 10}` asks for ten events, `{"acknowledge": CURSOR}` acknowledges for its `client`. It is
refused with the same statuses and problems, before its handshake, and closed with 1008 and a reason after a message that is not understood.
"""


@cache
def described() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, open_hub(Path(folder) / "home", local=True) as hub:
        limits = Limits(Roots((), hub.path))
        return application(hub, Access(None), Publications(), limits).openapi()


def page() -> str:
    parts, section = [HEAD], ""
    for path, methods in sorted(described()["paths"].items(), key=lambda item: (tag(item[1]), item[0])):
        if tag(methods) != section:
            section = tag(methods)
            parts += [f"## {section.capitalize()}", ""]
        for method, facts in sorted(methods.items()):
            parts += [f"### `{method.upper()} {path}`", "", " ".join(facts["description"].split()), ""]
            rows = [row(each) for each in facts.get("parameters", [])]
            rows += [f"| body | `{kind}` | |" for kind in facts.get("requestBody", {}).get("content", {})]
            if rows:
                parts += ["| parameter | type | default |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def tag(methods: dict[str, Any]) -> str:
    return next(iter(methods.values()))["tags"][0]


def row(parameter: dict[str, Any]) -> str:
    schema = parameter["schema"]
    where = "" if parameter["in"] == "query" else f" ({parameter['in']})"
    default = "" if schema.get("default") in (None, "") else f"`{schema['default']}`"
    return f"| `{parameter['name']}`{where} | {kind_of(schema)} | {'required' if parameter.get('required') else default} |"


def kind_of(schema: dict[str, Any]) -> str:
    kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    (kind,) = kinds
    if "enum" in kind:
        return " or ".join(f"`{each}`" for each in kind["enum"])
    bounds = [
        f"{words} {kind[key]:,}" for key, words in (("minimum", "from"), ("maximum", "to")) if key in kind
    ]
    return " ".join([kind["type"], *bounds])


def test_the_page_is_what_the_server_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        "run python -m tests.server.test_api_reference to write it again"
    )


def test_every_route_says_what_it_does() -> None:
    for path, methods in described()["paths"].items():
        for method, facts in methods.items():
            assert facts.get("description", "").endswith("."), (method, path)


def test_every_route_describes_its_errors_as_they_are_answered() -> None:
    found = described()
    named = {"$ref": "#/components/schemas/ErrorBody"}
    for path, methods in found["paths"].items():
        for method, facts in methods.items():
            assert "422" not in facts["responses"], (method, path)
            for status in ("400", "default") if path.startswith("/v1/") else ():
                assert facts["responses"][status]["content"] == {"application/json": {"schema": named}}, path
    schemas = found["components"]["schemas"]
    assert "HTTPValidationError" not in schemas
    answered = problem_of(UserError("wrong"))[1]
    assert set(answered) == set(schemas["ErrorBody"]["required"])
    assert set(answered["error"]) == set(schemas["ErrorFacts"]["required"])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

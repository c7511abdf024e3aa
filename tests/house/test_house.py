"""House rules that the linters cannot check; each test also checks how much it has read."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headrace"
ROOMS = {
    *("language", "algebra", "reference", "catalog", "synopses", "adaptive", "operators"),
    *("planner", "archive", "overload", "store", "connectors", "runtime", "remote", "server", "cli"),
}
LONGEST_FILE = 500
MOST_MODULES = 12
"""Of a folder, besides the file that describes it."""
LONGEST_FUNCTION = 60
TEXT = {".py", ".md", ".toml", ".sh", ".cql", ".yml", ".yaml", ".html", ".js", ".css", ".txt", ".cfg", ""}
# Written in two parts so that this file does not find itself.
REGISTRY_HOSTS = tuple(
    left + right
    for left, right in [
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("repo.", "maven"),
        ("repo1.", "maven"),
        ("registry.", "npmjs"),
        ("conda.", "anaconda"),
        ("crates", ".io"),
    ]
)


@cache
def sources() -> tuple[Path, ...]:
    files = tuple(sorted(PACKAGE.rglob("*.py")))
    assert len(files) > len(ROOMS) + 4, (
        f"only {len(files)} files below {PACKAGE}: these tests would check nothing"
    )
    return files


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def named(path: Path, node: ast.AST | None = None) -> str:
    return f"{path.relative_to(ROOT)}" + (f":{getattr(node, 'lineno', 1)}" if node is not None else "")


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call with a plain or dotted name, as it is written: `time.time`, `hash`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield ast.unparse(node.func), node


def lines_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of the function without its decorators and its docstring: explaining is free."""
    first = function.body[0]
    documented = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if documented else 0
    return (function.end_lineno or function.lineno) - function.lineno + 1 - docstring


def test_every_room_of_the_plan_exists_and_there_are_no_others() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms - {"examples"} == ROOMS


def test_no_folder_has_more_modules_than_one_can_keep_in_mind() -> None:
    folders: dict[str, int] = {}
    for path in sources():
        folders[named(path.parent)] = folders.get(named(path.parent), 0) + (path.name != "__init__.py")
    assert len(folders) > len(ROOMS)
    assert {name: modules for name, modules in folders.items() if modules > MOST_MODULES} == {}


def test_every_folder_says_which_question_it_answers() -> None:
    folders = {path.parent for path in sources()}
    assert [named(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_no_file_is_longer_than_the_ceiling() -> None:
    counted = {named(path): len(path.read_text(encoding="utf-8").splitlines()) for path in sources()}
    assert {name: lines for name, lines in counted.items() if lines > LONGEST_FILE} == {}


def test_no_function_is_longer_than_the_ceiling() -> None:
    functions = [
        (named(path, node) + f" {node.name}", lines_of(node))
        for path in sources()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert len(functions) > 20
    assert {name: lines for name, lines in functions if lines > LONGEST_FUNCTION} == {}


def test_every_module_says_which_question_it_answers() -> None:
    assert [named(path) for path in sources() if not ast.get_docstring(tree(path))] == []


def test_nothing_depends_on_the_builtin_hash() -> None:
    allowed = {  # inside __hash__ it only serves look-ups in dict and set
        call
        for path in sources()
        for method in ast.walk(tree(path))
        if isinstance(method, ast.FunctionDef) and method.name == "__hash__"
        for call in ast.walk(method)
    }
    wrong = [
        named(path, node)
        for path in sources()
        for name, node in calls(path)
        if name == "hash" and node not in allowed
    ]
    assert wrong == [], "built-in hash differs between processes; use a stable one"


def test_only_the_foundation_and_the_runtime_look_at_the_clock() -> None:
    watches = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "date.today"}
    allowed = {PACKAGE / "time.py", *(PACKAGE / "runtime").rglob("*.py")}
    read = [path for path in sources() if path not in allowed]
    wrong = [
        f"{named(path, node)} {name}"
        for path in read
        for name, node in calls(path)
        if ".".join(name.split(".")[-2:]) in watches
    ]
    assert len(read) >= len(ROOMS)
    assert wrong == [], "the time is an argument outside time.py and runtime/"


def test_no_randomness_comes_without_a_seed() -> None:
    unseeded = {
        *("random.random", "random.randint", "random.choice", "random.shuffle", "random.sample"),
        *("np.random.rand", "np.random.randn", "np.random.randint", "np.random.choice", "np.random.shuffle"),
    }
    seedless = {"np.random.default_rng", "random.Random", "np.random.RandomState"}
    wrong = [
        f"{named(path, node)} {name}"
        for path in sources()
        for name, node in calls(path)
        if name in unseeded or (name in seedless and not node.args and not node.keywords)
    ]
    assert wrong == [], "a seed or a generator is an argument"


def test_no_file_names_a_package_registry() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout: which files belong to the project cannot be known")
    files = [ROOT / line for line in listed.stdout.splitlines()]
    texts = [path for path in files if path.is_file() and path.suffix in TEXT]
    assert len(texts) > len(sources())
    wrong = [
        f"{named(path)}: {host}"
        for path in texts
        for host in REGISTRY_HOSTS
        if host in path.read_text(encoding="utf-8", errors="replace")
    ]
    assert wrong == []


def test_everything_below_the_runtime_works_without_spark() -> None:
    below = [
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in sources()
        if path.relative_to(PACKAGE).parts[0]
        not in {"runtime", "remote", "server", "cli", "__main__.py", "examples"}
    ]
    assert len(below) > len(ROOMS)
    program = (
        "import sys, importlib; sys.modules['pyspark'] = None; sys.modules['py4j'] = None\n"
        + "\n".join(f"importlib.import_module({name!r})" for name in below)
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@cache
def operator_classes() -> frozenset[str]:
    """The names of all classes of operators: what is below `BaseOperator`."""
    classes, bases = {"BaseOperator", "Operator"}, dict[str, set[str]]()
    for path in sources():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}
    while more := {name for name, above in bases.items() if above & classes} - classes:
        classes |= more
    return frozenset(classes)


@cache
def abilities() -> frozenset[str]:
    """What the contract of operators has: of these no code asks whether they are there."""
    contract = tree(PACKAGE / "operators" / "base" / "operator.py")
    base = next(n for n in contract.body if isinstance(n, ast.ClassDef) and n.name == "BaseOperator")
    methods = {n.name for n in ast.walk(base) if isinstance(n, ast.FunctionDef)}
    return frozenset(methods | {"finish", "steps", "rows", "panes", "inner", "family"})


def asks_for_a_class(code: ast.Module, classes: frozenset[str], members: frozenset[str]) -> Iterator[ast.AST]:
    """Where it is asked of which class an operator is, or whether it has an attribute."""
    several = {
        target.id
        for node in code.body
        if isinstance(node, ast.Assign)
        and classes & {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    wanted = classes | several

    def of_operators(node: ast.AST) -> bool:
        return any(isinstance(part, ast.Name) and part.id in wanted for part in ast.walk(node))

    for node in ast.walk(code):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]) if of_operators(
                kinds
            ):
                yield node
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"), args=[what, ast.Constant(value=name), *_]
            ) if name in members and "operator" in ast.unparse(what):
                yield node
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[kinds]) if of_operators(
                kinds
            ):
                yield node
            case ast.MatchClass(cls=kind) if of_operators(kind):
                yield node


def test_nobody_but_the_lowering_asks_of_which_class_an_operator_is() -> None:
    """A new operator would be wrong in each such place: what it can do besides is a method of `BaseOperator`."""
    assert len(operator_classes()) > 16
    wrong = [
        named(path, node)
        for path in sources()
        if not any(
            room.name in {"lowering", "joins"} and room.parent.name == "planner" for room in path.parents
        )
        for node in asks_for_a_class(tree(path), operator_classes(), abilities())
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("isinstance(each, Some | Other)", True),
        ("type(each) is Some", True),
        ("KINDS = Some, int\nisinstance(each, KINDS)", True),
        ("match each:\n    case Some(): pass", True),
        ("getattr(operator, 'finish', None)", True),
        ("hasattr(self._operators[0], 'finish')", True),
        ("isinstance(each, Other)", False),
        ("getattr(seen, 'finish')", False),
        ("getattr(operator, field.name)", False),
    ],
)
def test_who_asks_is_found(code: str, is_found: bool) -> None:
    asking = asks_for_a_class(ast.parse(code), frozenset({"Some"}), frozenset({"finish"}))
    assert bool(list(asking)) == is_found


PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
PATH = re.compile(r"(?<![\w/.*<>{}-])(?:\w[\w-]*/)*\w[\w-]*\.py\b")
OF_EACH = {"runner.py"}
"""A file that several folders have."""


def test_every_path_in_the_pages_names_a_file() -> None:
    """As it is from the root, in the package, or next to the page."""
    said = [(page, path) for page in PAGES for path in PATH.findall(page.read_text(encoding="utf-8"))]
    assert len(said) > 100
    wrong = [
        f"{named(page)}: {path}"
        for page, path in said
        if path not in OF_EACH and not any((base / path).is_file() for base in (ROOT, PACKAGE, page.parent))
    ]
    assert wrong == []


def unordered(code: ast.Module) -> Iterator[ast.AST]:
    """Where Arrow may put rows in another order in each run: groupings with its threads, its joins, its plans, its datasets."""
    for node in ast.walk(code):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            alone = any(
                keyword.arg == "use_threads" and ast.unparse(keyword.value) == "False"
                for keyword in node.keywords
            )
            joins = node.func.attr == "join" and any(
                keyword.arg in ("keys", "join_type") for keyword in node.keywords
            )
            if not alone and (node.func.attr in ("group_by", "join_asof", "to_reader") or joins):
                yield node
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        if any(imported in ("pyarrow.acero", "pyarrow.dataset") for imported in (*names, module)) or (
            module == "pyarrow" and {"acero", "dataset"} & {*names}
        ):
            yield node


def test_nothing_lets_arrow_s_threads_put_rows_in_another_order() -> None:
    """A task that is run again must give the same bytes; small inputs would not show what threads do to large ones."""
    wrong = [named(path, node) for path in sources() for node in unordered(tree(path))]
    assert wrong == []


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("t.group_by(['k']).aggregate([])", True),
        ("t.group_by(['k'], use_threads=False)", False),
        ("left.join(right, keys='k')", True),
        ("', '.join(keys)", False),
        ("from pyarrow import acero", True),
        ("import pyarrow.dataset as ds", True),
        ("import pyarrow.parquet", False),
    ],
)
def test_what_lets_them_is_found(code: str, is_found: bool) -> None:
    assert bool(list(unordered(ast.parse(code)))) == is_found


PICKLES = {
    "algebra/windows/user_code.py": "what users registered, when a query that uses it runs",
    "runtime/plan/user_code.py": "what users register",
    "runtime/epoch/executor.py": "messages in flight, as they would go to another process",
    "runtime/spark/spark_executor.py": "messages in flight, through Spark",
    "runtime/spark/standing/task_functions.py": "errors in flight, in place of blobs",
    "runtime/spark/standing/standing_job.py": "messages and receipts in flight, to and from standing tasks",
    "runtime/spark/standing/standing_task.py": "the same, at the other end",
    "runtime/messages/exchange_blob.py": "receipts in flight, from a scan task to a state task",
}
"""The files that may pickle, and what: never what rests in a home, but for the code of users."""


def pickling(code: ast.Module) -> Iterator[ast.AST]:
    """Imports of what makes or loads pickles."""
    for node in ast.walk(code):
        imported = (
            [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        )
        module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
        said = {part for dotted in (*imported, module) for part in dotted.split(".")}
        if said & {"pickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}:
            yield node


def test_pickles_are_made_and_loaded_in_named_places_alone() -> None:
    pickling_files = {
        path.relative_to(PACKAGE).as_posix() for path in sources() if any(True for _ in pickling(tree(path)))
    }
    assert pickling_files == PICKLES.keys(), "what rests in a home is data: see store/files/values.py"


@pytest.mark.parametrize(
    ("code", "is_found"),
    [
        ("import pickle", True),
        ("from pickle import loads", True),
        ("from pyspark import cloudpickle", True),
        ("from pyspark.cloudpickle import dumps", True),
        ("import json", False),
    ],
)
def test_imports_that_pickle_are_found(code: str, is_found: bool) -> None:
    assert bool(list(pickling(ast.parse(code)))) == is_found

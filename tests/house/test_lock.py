"""The lock file and the ranges of pyproject.toml agree, so that a fresh clone gets what CI tested."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def wanted(*groups: str) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for group in groups for line in project["optional-dependencies"][group]]
    return [Requirement(line) for line in [*project["dependencies"], *optional]]


def locked() -> list[Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if not line.startswith("#")]


def test_the_lock_has_a_version_of_each_dependency_that_its_range_allows() -> None:
    ranges = wanted("dev", "bench", "traces")
    assert len(ranges) > 10
    for dependency in ranges:
        exact = [pin for pin in locked() if pin.name == dependency.name]
        assert exact, f"{dependency.name} is not locked: make lock"
        for pin in exact:
            (only,) = pin.specifier
            assert only.operator == "=="
            assert only.version in dependency.specifier, f"{pin} is outside {dependency}: make lock"


def test_this_environment_is_the_locked_one() -> None:
    for dependency in wanted("dev"):
        pins = [pin for pin in locked() if pin.name == dependency.name]
        applies = [pin for pin in pins if pin.marker is None or pin.marker.evaluate()]
        assert [str(pin.specifier) for pin in applies] == [f"=={version(dependency.name)}"], "make setup-dev"

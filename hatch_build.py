"""Build hook: compiles the kernels in C of the package into one library beside their sources.

The compiler is Zig's, a wheel that pip fetches for the build alone: a machine needs none of its own, and everybody gets
the same. Each kernel is compiled for several instruction sets; the library chooses when it is loaded.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src", "headrace", "operators", "native")
KERNELS = ("bitmaps",)
ONCE = ("lanes", "cells", "histograms", "dispatch")
"""Sources that gain nothing from a wider instruction set."""
VARIANTS = {"plain": "x86_64", "v3": "x86_64_v3", "v4": "x86_64_v4+avx512vpopcntdq"}


class Kernels(BuildHookInterface[Any]):
    """Compiles before a wheel is made, or the checkout is installed as editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and make the wheel one of this platform."""
        del version
        compile_kernels(Path(self.root))
        build_data["artifacts"].append(f"/{FOLDER.as_posix()}/kernels.bin")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_kernels(root: Path) -> None:
    """Write the library; raises `CalledProcessError` with the compiler's own message above it."""
    sources, objects = root / FOLDER, root / "build" / "kernels"
    objects.mkdir(parents=True, exist_ok=True)
    wide = platform.machine().lower() in {"x86_64", "amd64"}
    made = []
    for kernel in KERNELS:
        for variant, processor in VARIANTS.items() if wide else {"plain": "baseline"}.items():
            made.append(objects / f"{kernel}-{variant}.o")
            names = f"-DFOLD=headrace_fold_{variant}"
            _compiler(root, f"-mcpu={processor}", names, "-c", sources / f"{kernel}.c", "-o", made[-1])
    for source in ONCE:
        made.append(objects / f"{source}.o")
        _compiler(root, "-mcpu=baseline", "-c", sources / f"{source}.c", "-o", made[-1])
    _compiler(root, "-shared", "-s", *made, "-o", sources / "kernels.bin")


def _compiler(root: Path, *arguments: object) -> None:
    cache = root / "build" / "zig"
    settings = {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}
    flags = ["-O3", "-std=c11", "-fPIC", "-fno-sanitize=undefined", "-Wall", "-Wextra", "-Werror"]
    command = [sys.executable, "-m", "ziglang", "cc", *flags, *map(str, arguments)]
    subprocess.run(command, check=True, env=os.environ | settings)  # noqa: S603 - fixed arguments


if __name__ == "__main__":
    compile_kernels(Path(__file__).parent)

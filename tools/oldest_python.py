"""Prove that all the code calls exists in the oldest Python that it promises, even on a newer one.

    python tools/oldest_python.py [FOLDER]

The promises are read from `requires-python` and from the docstrings of the programs that run on other machines. vermin knows when names came into Python,
but not which types values have: `archive.extractall(filter=...)` escapes it. So keywords of methods are looked up by
the method's name, for modules that the file imports. `# novm` on a line exempts the line, as it does for vermin.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from vermin import KWARGS_REQS, Config

FOLDERS = ("src", "tests", "tools", "benchmarks")
# What runs on other machines, with the Python that is there.
FAR_PROGRAMS = ("src/pgdyno/run/sample/os_sampler.py", "src/pgdyno/run/link/far_look.py")

Minor = tuple[int, int]
Index = dict[tuple[str, str], list[tuple[str, Minor]]]


def index_keywords() -> Index:
    """Map a function's last name and a keyword to the functions that have both, each with the first Python to know it."""
    index: Index = {}
    for (function, keyword), (_, since) in KWARGS_REQS(Config()).items():
        if since is not None:
            index.setdefault((function.rpartition(".")[2], keyword), []).append((function, since))
    return index


def list_imports(tree: ast.AST) -> set[str]:
    """List the top-level modules that a file imports."""
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
    return {name.partition(".")[0] for name in names}


def find_late_keywords(path: Path, index: Index, oldest: Minor) -> Iterator[str]:
    """Find keywords that no function of this name takes in the oldest Python."""
    source = path.read_text()
    tree = ast.parse(source)
    lines, imports = source.splitlines(), list_imports(tree)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        for keyword in call.keywords:
            if "# novm" in lines[keyword.lineno - 1]:
                continue
            entries = index.get((name, keyword.arg or ""), [])
            known = [entry for entry in entries if entry[0].partition(".")[0] in imports]
            if known and min(since for _, since in known) > oldest:
                function, since = known[0]
                yield f"{path}:{keyword.lineno}: {function}({keyword.arg}=) requires {since[0]}.{since[1]}"


def run_vermin(root: Path, oldest: Minor, *arguments: str | Path) -> bool:
    """Run vermin, which prints what is newer; say whether nothing is."""
    argv: list[str | Path] = [
        sys.executable,
        "-c",
        "import vermin; vermin.main()",
        f"--target={oldest[0]}.{oldest[1]}-",
    ]
    argv += ["--violations", "--quiet", "--no-tips", *arguments]
    return subprocess.run(argv, check=False, cwd=root).returncode == 0


def read_minor(pattern: str, text: str) -> Minor:
    """Read the Python that a text promises."""
    found = re.search(pattern, text)
    if found is None:
        sys.exit(f"oldest_python: no {pattern!r} found")
    return int(found[1]), int(found[2])


def main() -> int:
    """Look at all files; 1 if one of them needs a newer Python than it promises."""
    root = Path(sys.argv[1] if sys.argv[1:] else ".")
    promised = tomllib.loads((root / "pyproject.toml").read_text())["project"]["requires-python"]
    oldest = read_minor(r">=(\d+)\.(\d+)", promised)
    far = {
        path: read_minor(r"Python (\d+)\.(\d+)\s+or\s+later", (root / path).read_text())
        for path in FAR_PROGRAMS
        if (root / path).exists()
    }
    paths = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    exempting = [path for path in paths if "# novm" in path.read_text()]
    others = [path for path in paths if path not in exempting]
    # msgspec evaluates annotations; those of the programs on other machines never are. Looking for comments takes a quarter of the time.
    fits = [
        run_vermin(root, oldest, "--eval-annotations", "--no-parse-comments", *others),
        not exempting or run_vermin(root, oldest, "--eval-annotations", *exempting),
        *(run_vermin(root, least, path) for path, least in far.items()),
    ]
    index = index_keywords()
    late = [late for path, least in far.items() for late in find_late_keywords(root / path, index, least)]
    for path in paths:
        late += find_late_keywords(path, index, oldest)
    sys.stdout.writelines(f"{line}\n" for line in late)
    return 0 if all(fits) and not late else 1


if __name__ == "__main__":
    sys.exit(main())

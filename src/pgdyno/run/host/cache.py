"""Keep between runs what takes long to compute and always has the same result.

The cache is optional: an entry that is missing, damaged, owned by another account or not writable is computed again
without a message. The cache refuses to keep what cannot be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Collection
from pathlib import Path

_DIGEST_BYTES = hashlib.sha256().digest_size


def keep_text(name: str, make: Callable[[], str]) -> str:
    """Return the result of `make`, from this run or an earlier one.

    Args:
        name: The file name in the cache, which differs whenever the text may differ.
        make: Computes the text.
    """
    path = _cache_folder() / name
    text = _read(path)
    if text is None:
        text = make()
        _write(path, text)
    return text


def keep_for(name: str, key: str, make: Callable[[], str]) -> str:
    """Return the result of `make` for a key; a result for another key is replaced, so that old ones do not pile up.

    Args:
        name: The file name in the cache.
        key: What the result follows from, without line breaks; see `fingerprint`.
        make: Computes the text.
    """
    text = find_for(name, key)
    if text is None:
        text = make()
        _write(_cache_folder() / name, f"{key}\n{text}")
    return text


def find_for(name: str, key: str) -> str | None:
    """Return what `keep_for` has kept for a key; None if there is nothing."""
    known, _, text = (_read(_cache_folder() / name) or "").partition("\n")
    return text if known == key else None


def fingerprint(folder: Path, *more: str, suffixes: Collection[str] = ()) -> str:
    """Return a digest of the names, sizes and times of all files in a folder, or of those with some endings."""
    digest = hashlib.sha256(os.fsencode("\0".join((str(folder), *more))))
    for path in sorted(folder.rglob("*")):
        if path.suffix in suffixes or not suffixes:
            # A link that leads nowhere is no reason to read nothing.
            seen = path.stat() if path.exists() else path.lstat()
            digest.update(os.fsencode(f"{path.relative_to(folder)}\0{seen.st_size}\0{seen.st_mtime_ns}\n"))
    return digest.hexdigest()


def _cache_folder() -> Path:
    # Source: XDG Base Directory Specification 0.8: a relative path is to be ignored.
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path(os.environ.get("HOME") or "/nonexistent", ".cache")
    return base / "pgdyno"


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            # A file written by another account could put false text into this account's reports.
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                return None
            content = file.read()
    except OSError:
        return None
    digest, text = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return text.decode() if hashlib.sha256(text).digest() == digest else None


def _write(path: Path, text: str) -> None:
    encoded = text.encode()
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with contextlib.suppress(OSError):
        path.parent.parent.mkdir(mode=0o700, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            draft.write_bytes(hashlib.sha256(encoded).digest() + encoded)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)

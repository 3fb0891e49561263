"""Files of the data directory in one sealed block: AES-256-GCM, with a key made of a passphrase."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec
from argon2.low_level import Type, hash_secret_raw
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clarion.errors import CommandFailed

SHORTEST_PASSPHRASE = 12
_VERSION = b"clarion keys 1\n"
_SALT_BYTES, _NONCE_BYTES, _KEY_BYTES = 16, 12, 32
# The second choice of RFC 9106, for machines that have little memory to spare.
_PASSES, _MEMORY_KIB, _LANES = 3, 64 * 1024, 4
# All keys and certificates of an installation have a few kilobytes.
_LIMIT_BYTES = 16 * 1024 * 1024

_Files = dict[str, bytes]


def seal_files(files: Mapping[str, bytes], passphrase: str) -> bytes:
    """Return files by their names as one block that only the passphrase opens."""
    salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
    content = msgspec.msgpack.encode(files)
    if len(content) > _LIMIT_BYTES:
        raise CommandFailed(f"The keys and certificates have more than {_LIMIT_BYTES:,} bytes.")
    sealed = AESGCM(_derive(passphrase, salt)).encrypt(nonce, content, _VERSION)
    return _VERSION + salt + nonce + sealed


def open_files(block: bytes, passphrase: str) -> _Files:
    """Return the files by their names; `CommandFailed` if the passphrase is not the right one."""
    salt, start = block[len(_VERSION) :][:_SALT_BYTES], len(_VERSION) + _SALT_BYTES
    nonce, sealed = block[start:][:_NONCE_BYTES], block[start + _NONCE_BYTES :]
    try:
        content = AESGCM(_derive(passphrase, salt)).decrypt(nonce, sealed, _VERSION)
    except (InvalidTag, ValueError) as error:
        raise CommandFailed("The passphrase does not open the keys of this backup.") from error
    files = msgspec.msgpack.decode(content, type=_Files)
    if outside := [name for name in files if not _is_inside(name)]:
        raise CommandFailed(f"The backup has keys outside of the data directory: {outside[0]!r}.")
    return files


def read_files(directory: Path) -> _Files:
    """Return the files that an installation needs: keys, certificates, first-run.json."""
    names = ("master.key", "first-run.json", "tls/*", "provider-keys/*")
    paths = [path for name in names for path in sorted(directory.glob(name)) if path.is_file()]
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


def _derive(passphrase: str, salt: bytes) -> bytes:
    return hash_secret_raw(
        passphrase.encode(), salt, _PASSES, _MEMORY_KIB, _LANES, _KEY_BYTES, Type.ID
    )


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts

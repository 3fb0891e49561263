"""Files with certificate authorities: whatever an app names, nobody waits and nothing is told."""

import os
from pathlib import Path

import pytest

from clarion.channels.authorities import CA_FAULT, find_ca_faults
from clarion.channels.http_clients import HttpClients, NotConnected, ProviderRequest
from clarion.errors import FieldFault
from tests.peers.authority import Authority

# Regular files without a size, as all of this file system: reading the first waits for the kernel.
NEVER_ENDING = ["/proc/kmsg", "/proc/self/environ"]


def test_a_file_of_certificates_is_taken(authority: Authority) -> None:
    assert list(find_ca_faults(str(authority.ca_path))) == []
    assert list(find_ca_faults(None)) == []


def make_files(folder: Path) -> list[str]:
    named = {name: folder / name for name in ("missing", "text", "pipe", "large", "empty")}
    named["text"].write_text("secret")
    named["large"].write_bytes(b"\n" * (2 << 20))
    named["empty"].touch()
    os.mkfifo(named["pipe"])
    return [*map(str, named.values()), str(folder), "/dev/zero", "/etc/shadow", "a\0b"]


def test_every_other_file_has_one_text(tmp_path: Path) -> None:
    paths = [*make_files(tmp_path), *NEVER_ENDING]
    expected = [FieldFault("settings.ca_path", CA_FAULT)]
    assert [list(find_ca_faults(path)) for path in paths] == [expected for _ in paths]


@pytest.mark.parametrize("path", NEVER_ENDING)
async def test_a_client_does_not_wait_for_a_file(http: HttpClients, path: str) -> None:
    with pytest.raises(NotConnected, match="ca_path"):
        await http.post(ProviderRequest("https://127.0.0.1:2000", {}, b"", 1, ca_path=path))

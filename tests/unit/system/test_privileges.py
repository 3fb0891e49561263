"""A server that root starts says so, or runs as the account that is asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from clarion.errors import StartError
from clarion.system.privileges import change_account

IS_ROOT = os.geteuid() == 0
# Prints who it is after the change, and what it may do then.
AFTERWARDS = """
import os, sys
from pathlib import Path
from clarion.system.privileges import change_account
change_account("nobody", Path(sys.argv[1]))
print(os.getresuid() == (65534,) * 3, 0 in os.getgroups(), os.access("/", os.W_OK))
"""


def test_it_is_said_that_no_privilege_is_needed(tmp_path: Path) -> None:
    with capture_logs() as lines:
        change_account("", tmp_path)
    assert [line["event"] for line in lines] == ["running_as_root"] * IS_ROOT


def test_an_account_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no account no-such-account"):
        change_account("no-such-account", tmp_path)


def test_everything_is_given_up_and_the_data_directory_is_its_own(tmp_path: Path) -> None:
    data = tmp_path / "new" / "data"
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS, str(data)], capture_output=True, text=True, check=False
    )
    if IS_ROOT:
        assert (done.stderr, done.stdout) == ("", "True False False\n")
        assert (data.stat().st_uid, data.stat().st_mode & 0o777) == (65534, 0o700)
    else:
        assert "only root can change the account" in done.stderr

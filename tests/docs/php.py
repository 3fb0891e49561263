"""Stands in for PHP on machines without it, for the one sample that was run with PHP.

If the sample is changed, run `tests/docs` where PHP is, and take the new hash.
"""

import hashlib
import runpy
import sys
from pathlib import Path

RUN_WITH_PHP = "aca8af1937bbbb96c0085bc2ec51e031b6f17314b35cc5e4508fec7a2af552ad"

if __name__ == "__main__":
    sample = Path(sys.argv[1])
    if hashlib.sha256(sample.read_bytes()).hexdigest() != RUN_WITH_PHP:
        sys.exit(f"{sample} is not the sample that was run with PHP")
    # The sample in Python signs the same token.
    runpy.run_path("sign.py")

"""As much of `oathtool` as the documentation uses, for machines without it."""

import sys
import time

from clarion.access.administrators.totp import STEP_MS, code_at, decode_secret

if __name__ == "__main__":
    step = int(time.time() * 1000) // STEP_MS
    sys.stdout.write(f"{code_at(decode_secret(sys.argv[-1]), step)}\n")

"""Logs and metrics."""

import sys

# structlog imports rich, if there is one, to print tracebacks; ours are formatted before it sees
# them. Each process would start later and be larger for it.
_hidden = "rich" not in sys.modules
if _hidden:
    sys.modules["rich"] = None  # type: ignore[assignment]
import structlog  # noqa: E402, F401

if _hidden:
    del sys.modules["rich"]

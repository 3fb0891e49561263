"""What a load is: requests, how hard and how long, and what came of it."""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import msgspec


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """Headers go out as given. A Struct, because making one must cost next to nothing."""

    method: str = "GET"
    path: str = "/"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Source = Callable[[int], Request]
OnAnswer = Callable[[int, int, bytes], None]  # index, status, body


@dataclass(frozen=True, kw_only=True)
class Load:
    """How hard and how long; `total` ends the run early, `grace_s` is the wait for late answers.

    It can be pickled, so TLS is a flag; without a `ca_file` any certificate will do.
    """

    host: str
    port: int
    tls: bool = False
    ca_file: str | None = None
    connections: int = 1
    streams: int = 100
    duration_s: float = 5.0
    warm_up_s: float = 0.0
    total: int | None = None
    rate: float | None = None
    connect_s: float = 10.0
    grace_s: float = 5.0

    @property
    def longest_s(self) -> float:
        """No run takes longer, the start of a process for it included."""
        return self.connect_s + self.warm_up_s + self.duration_s + self.grace_s + 10.0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What was started after the warm-up, and what became of it; latencies in seconds, sorted.

    An error is a request without an answer, apart from three: "connect" and "disconnect" count
    connections, and "unsent" requests that were due when no stream was free for them. The number
    in "reset 7" or "goaway 2" is an error code of RFC 9113, section 7.
    """

    sent: int
    by_status: dict[int, int]
    errors: dict[str, int]
    seconds: float
    cpu_s: float
    latencies: "array[float]"

    @property
    def answered(self) -> int:
        """Answers of any status."""
        return len(self.latencies)

    @property
    def throughput(self) -> float:
        """Answers a second, up to the last one."""
        return self.answered / self.seconds if self.seconds else 0.0

    @property
    def busy(self) -> float:
        """Share of one core that the generator used; near 1.0 it was the bottleneck itself."""
        return self.cpu_s / self.seconds if self.seconds else 0.0

    def percentile(self, percent: float) -> float:
        """Latency that `percent` of the answers did not exceed; NaN when nothing was answered."""
        if not self.latencies:
            return math.nan
        rank = math.ceil(len(self.latencies) * percent / 100)
        return self.latencies[max(rank, 1) - 1]

    def summary(self) -> dict[str, object]:
        """Everything but the single latencies, ready for JSON."""
        percentiles = {"p50": 50, "p90": 90, "p99": 99, "max": 100}
        return {
            "sent": self.sent,
            "by_status": self.by_status,
            "errors": self.errors,
            "seconds": round(self.seconds, 3),
            "throughput": round(self.throughput, 1),
            "busy": round(self.busy, 3),
            **{f"{name}_ms": self._milliseconds(p) for name, p in percentiles.items()},
        }

    def _milliseconds(self, percent: float) -> float | None:
        return round(self.percentile(percent) * 1000, 3) if self.latencies else None

"""What goes wrong in a run: chosen by its seed, and over when the run is to come to rest."""

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

# How often each happens where it can, in a run that has it.
_ODDS = {
    "store_busy": 0.05,
    "answer_unknown": 0.05,
    "disk_full": 0.05,
    "read_fails": 0.003,
    "provider_hangs": 0.1,
    "provider_retries": 0.3,
    "provider_rejects": 0.2,
    "provider_raises": 0.05,
    "cut": 0.05,
    "ack_lost": 0.1,
    "node_crash": 0.05,
    "node_stop": 0.05,
    "cancel": 0.1,
}
# Of one node and its writer process.
_OF_ONE = {
    "writer_dies": 0.01,
    "writer_dies_after": 0.01,
    "scrub_busy": 0.3,
    "scrub_slow": 0.3,
    "clock_step": 0.05,
}
_OF_SEVERAL = {
    "node_pause": 0.05,
    "redis_cut": 0.3,
    "redis_flush": 0.05,
    "redis_stop": 0.1,
    "store_cut": 0.05,
    "store_lost": 0.01,
}
ODDS = _ODDS | _OF_ONE | _OF_SEVERAL
# The longest usual delay in seconds; one in fifty is `LATE` times as long.
DELAYS = {
    "pipe": 0.002,
    "disk": 0.01,
    "read": 0.004,
    "network": 0.1,
    "provider": 0.5,
    "redis": 0.003,
}
LATE = 100


@dataclass
class Faults:
    """The faults of one run."""

    chance: random.Random
    kinds: frozenset[str]
    has_slow_reads: bool
    is_over: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def choose(
        cls, chance: random.Random, without: Collection[str] = (), *, is_shared: bool = False
    ) -> "Faults":
        """Choose a profile: nothing, one kind, some, or all of them; and leave some out."""
        names = sorted(_ODDS | (_OF_SEVERAL if is_shared else _OF_ONE))
        match chance.randrange(4):
            case 0:
                kinds: list[str] = []
            case 1:
                kinds = [chance.choice(names)]
            case 2:
                kinds = [each for each in names if chance.random() < 0.4]
            case _:
                kinds = names
        return cls(
            chance, frozenset(kinds).difference(without), has_slow_reads=chance.random() < 0.5
        )

    def happens(self, kind: str) -> bool:
        """Whether something goes wrong here and now."""
        if self.is_over or kind not in self.kinds or self.chance.random() >= ODDS[kind]:
            return False
        self.counts[kind] += 1
        return True

    def delay_s(self, of: str) -> float:
        """Return how long something takes."""
        delay_s = self.chance.random() * DELAYS[of]
        is_late = not self.is_over and self.chance.random() < 0.02
        return delay_s * LATE if is_late else delay_s

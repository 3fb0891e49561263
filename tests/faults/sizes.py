"""How long each fault test runs: `pr` in CI, `night` by `make faults`.

`CLARION_TEST_SIZE` chooses the column. The numbers of a test stand here and nowhere else.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """One column of the table."""

    timeout_s: int

    # T03, T04: power loss.
    power_loss_operations: int
    torn_seeds: int
    random_power_losses: int
    control_power_losses: int

    # T01, T11, T05: the server as a process.
    server_kills: int
    longest_between_kills_s: float
    server_stops: int
    clients: int

    # T05, T06: errors of the disk.
    failing_syncs: int
    disk_full_cycles: int

    # T09: backups under load, on each engine.
    backups: int

    # T10: migrations.
    migration_rounds: int
    migrates_every_crash: bool  # also those that SQLite repairs to the same database

    # T12: PostgreSQL.
    postgres_kills: int

    # T12, T14, T15, T16: three nodes.
    cluster_devices: int
    cluster_pushes: int
    cluster_pushes_per_second: float
    stops: int  # of a node by SIGTERM
    pauses: int
    cluster_rounds: int  # how often each fault is made
    cluster_fault_s: float  # how long a fault lasts
    lock_s: float

    # T21: devices that reconnect at once.
    storm_devices: int

    # T01, T20: the gateway.
    chaos_devices: int
    chaos_pushes: int
    chaos_kills: int
    chaos_rate: float
    chaos_disconnects_per_second: float

    # T19: slow consumers.
    consumers: int
    slow_consumers: int
    broadcasts: int
    broadcasts_per_second: float

    # T28: strangers at the gateway.
    strangers: int
    unfinished_frames: int

    # T30: the pipeline and its model.
    pipeline_sequences: int
    pipeline_steps: int
    pipeline_walks: int

    # T33: overload, and T34: a noisy app beside quiet ones.
    overload_phase_s: float
    overload_goodput: float  # of the ceiling; CI shares its processors with the load
    quiet_apps: int
    noisy_users: int
    noisy_phase_s: float
    quiet_median_factor: float
    quiet_p99_factor: float
    quiet_noise_s: float  # what a commit can take by itself on a machine that others use

    # T01, T43: the pipeline under kills.
    pipeline_events: int
    pipeline_kills: int
    lease_left_ms: int  # of those of a killed server, on PostgreSQL

    # T29: examples of each operation that schemathesis makes.
    fuzz_examples: int
    has_all_roles: bool

    # T25: huge input.
    huge_body_bytes: int
    nested_levels: int

    # T26: HTTP/1.1 abuse.
    http_vectors: int

    # T27: HTTP/2 floods.
    flood_s: float

    # T28: slow clients.
    slow_connections: int
    slow_s: int

    # T18: messages to a provider, for each of its faults.
    provider_messages: int
    provider_timeout_s: int  # shorter than what comes at a byte a second
    # How the delay of one channel by another is measured: in rounds, since machines are shared.
    hanging_rounds: int
    hanging_events: int

    # T39: users who are erased while notifications are delivered to them.
    erased_users: int

    # Security item 27: a name server that changes its answers.
    rebinding_tries: int

    # T35: leaks. In CI too short for a slope: only what grows without end is found.
    leak_warm_up_s: float
    leak_warm_up_renders: int  # 2,000 templates are cached, and each round has two
    leak_slices: int  # after each of them memory is measured
    leak_slice_s: float
    leak_app_every_s: float
    leak_floor_mib: float
    leak_blocks_per_h: float


TABLE = {
    "pr": Sizes(
        timeout_s=300,
        power_loss_operations=200,
        torn_seeds=3,
        random_power_losses=2_000,
        control_power_losses=200,
        server_kills=20,
        longest_between_kills_s=0.8,
        server_stops=3,
        clients=50,
        failing_syncs=20,
        disk_full_cycles=5,
        backups=2,
        migration_rounds=1,
        migrates_every_crash=False,
        postgres_kills=6,
        cluster_devices=30,
        cluster_pushes=800,
        cluster_pushes_per_second=60,
        stops=4,
        pauses=2,
        cluster_rounds=1,
        cluster_fault_s=2,
        lock_s=3,
        storm_devices=600,
        chaos_devices=200,
        chaos_pushes=4_000,
        chaos_kills=4,
        chaos_rate=500,
        chaos_disconnects_per_second=10,
        consumers=60,
        slow_consumers=6,
        broadcasts=150,
        broadcasts_per_second=25,
        strangers=2_500,
        unfinished_frames=100,
        pipeline_sequences=30,
        pipeline_steps=20,
        pipeline_walks=30,
        overload_phase_s=4,
        overload_goodput=0.7,
        quiet_apps=5,
        noisy_users=200,
        noisy_phase_s=6,
        quiet_median_factor=2,
        quiet_p99_factor=4,
        quiet_noise_s=0.25,
        pipeline_events=2_000,
        pipeline_kills=4,
        lease_left_ms=3_000,
        fuzz_examples=8,
        has_all_roles=False,
        huge_body_bytes=16 << 20,
        nested_levels=100_000,
        http_vectors=60,
        flood_s=1.5,
        slow_connections=200,
        slow_s=6,
        provider_messages=3,
        provider_timeout_s=5,
        hanging_rounds=2,
        hanging_events=30,
        erased_users=12,
        rebinding_tries=10_000,
        leak_warm_up_s=6,
        leak_warm_up_renders=0,
        leak_slices=2,
        leak_slice_s=4,
        leak_app_every_s=0,
        leak_floor_mib=25,
        leak_blocks_per_h=float("inf"),
    ),
    "night": Sizes(
        timeout_s=2 * 3600,
        power_loss_operations=200,
        torn_seeds=3,
        random_power_losses=10_000,
        control_power_losses=1_000,
        server_kills=300,
        longest_between_kills_s=2.0,
        server_stops=100,
        clients=50,
        failing_syncs=100,
        disk_full_cycles=20,
        backups=10,
        migration_rounds=5,
        migrates_every_crash=True,
        postgres_kills=100,
        cluster_devices=200,
        cluster_pushes=60_000,
        cluster_pushes_per_second=60,
        stops=100,
        pauses=200,
        cluster_rounds=20,
        cluster_fault_s=20,
        lock_s=30,
        storm_devices=5_000,
        chaos_devices=1_000,
        chaos_pushes=20_000,
        chaos_kills=10,
        chaos_rate=800,
        chaos_disconnects_per_second=50,
        consumers=2_000,
        slow_consumers=100,
        broadcasts=1_500,
        broadcasts_per_second=2.5,
        strangers=10_000,
        unfinished_frames=1_000,
        pipeline_sequences=2_000,
        pipeline_steps=50,
        pipeline_walks=1_000,
        overload_phase_s=600,
        overload_goodput=1.0,
        quiet_apps=20,
        noisy_users=2_000,
        noisy_phase_s=600,
        quiet_median_factor=2,
        quiet_p99_factor=1.5,
        quiet_noise_s=0,
        pipeline_events=20_000,
        pipeline_kills=12,
        lease_left_ms=45_000,
        fuzz_examples=1_000,
        has_all_roles=True,
        huge_body_bytes=1 << 30,
        nested_levels=100_000,
        http_vectors=400,
        flood_s=60,
        slow_connections=5_000,
        slow_s=300,
        provider_messages=1_000,
        provider_timeout_s=8,
        hanging_rounds=20,
        hanging_events=100,
        erased_users=1_000,
        rebinding_tries=200_000,
        leak_warm_up_s=900,
        leak_warm_up_renders=1_100,
        leak_slices=30,
        leak_slice_s=60,
        leak_app_every_s=10,
        leak_floor_mib=3,
        leak_blocks_per_h=12_000,
    ),
}

SIZES = TABLE[os.environ.get("CLARION_TEST_SIZE", "pr")]

"""How long each fault test runs: in `make test`, in `make test-all`, and by `make faults`.

`CLARION_TEST_SIZE` chooses the column. The numbers of a test stand here and nowhere else.
"""

import os

import pytest

COLUMN = ("small", "pr", "night").index(os.environ.get("CLARION_TEST_SIZE", "pr"))


class SIZES:
    """The numbers of the chosen column."""

    timeout_s = (300, 300, 7_200)[COLUMN]

    # T03, T04: power loss.
    power_loss_operations = (40, 200, 200)[COLUMN]
    torn_seeds = (1, 3, 3)[COLUMN]
    loses_power_in_migrations = (False, True, True)[COLUMN]  # T10 does so, too
    random_power_losses = (200, 2_000, 10_000)[COLUMN]
    control_power_losses = (200, 200, 1_000)[COLUMN]

    # T01, T11, T05: the server as a process.
    server_kills = (2, 20, 300)[COLUMN]
    longest_between_kills_s = (0.8, 0.8, 2.0)[COLUMN]
    server_stops = (1, 3, 100)[COLUMN]
    clients = (50, 50, 50)[COLUMN]

    # T05, T06: errors of the disk.
    failing_syncs = (5, 20, 100)[COLUMN]
    disk_full_cycles = (1, 5, 20)[COLUMN]

    # T09: backups under load, on each engine.
    backups = (1, 2, 10)[COLUMN]

    # T10: migrations.
    migration_rounds = (1, 1, 5)[COLUMN]
    migration_stride = (37, 1, 1)[COLUMN]  # of the statements and operations: 1 for a crash at each
    # also those that SQLite repairs to the same database
    migrates_every_crash = (False, False, True)[COLUMN]

    # Item 31: rotations of the master key.
    rotation_stride = (7, 1, 1)[COLUMN]

    # T40: simulated runs.
    simulated_seeds = (200, 5_000, 50_000)[COLUMN]

    # T31: parsers, each with so many inputs.
    parser_inputs = (200, 1_000, 300_000)[COLUMN]

    # T12: PostgreSQL.
    postgres_kills = (2, 6, 100)[COLUMN]
    postgres_start_kills = (4, 12, 100)[COLUMN]  # spread over a start
    outage_s = (6.0, 60.0, 60.0)[COLUMN]

    # T12, T14, T15, T16: three nodes.
    cluster_devices = (30, 30, 200)[COLUMN]
    cluster_pushes = (800, 800, 60_000)[COLUMN]
    cluster_pushes_per_second = (60.0, 60.0, 60.0)[COLUMN]
    stops = (4, 4, 100)[COLUMN]  # of a node by SIGTERM
    pauses = (2, 2, 200)[COLUMN]
    cluster_rounds = (1, 1, 20)[COLUMN]  # how often each fault is made
    cut_off_s = (70.0, 70.0, 300.0)[COLUMN]  # longer than a node's number is kept in Redis
    cluster_fault_s = (2.0, 2.0, 20.0)[COLUMN]  # how long a fault lasts
    lock_s = (3.0, 3.0, 30.0)[COLUMN]

    # T21: devices that reconnect at once.
    storm_devices = (600, 600, 5_000)[COLUMN]

    # T01, T20: the gateway.
    chaos_devices = (40, 200, 1_000)[COLUMN]
    chaos_pushes = (400, 4_000, 20_000)[COLUMN]
    chaos_kills = (1, 4, 10)[COLUMN]
    chaos_rate = (500.0, 500.0, 800.0)[COLUMN]
    chaos_disconnects_per_second = (10.0, 10.0, 50.0)[COLUMN]

    # T19: slow consumers.
    consumers = (60, 60, 2_000)[COLUMN]
    slow_consumers = (6, 6, 100)[COLUMN]
    broadcasts = (150, 150, 1_500)[COLUMN]
    broadcasts_per_second = (25.0, 25.0, 2.5)[COLUMN]

    # T28: strangers at the gateway.
    strangers = (2_500, 2_500, 10_000)[COLUMN]
    unfinished_frames = (100, 100, 1_000)[COLUMN]

    # T30: the pipeline and its model.
    pipeline_sequences = (15, 30, 2_000)[COLUMN]
    pipeline_steps = (20, 20, 50)[COLUMN]
    pipeline_walks = (10, 30, 1_000)[COLUMN]

    # T33: overload, and T34: a noisy app beside quiet ones.
    overload_phase_s = (2.0, 2.0, 600.0)[COLUMN]
    overload_rounds = (3, 3, 1)[COLUMN]
    # of the ceiling; CI shares its processors with the load
    overload_goodput = (0.7, 0.7, 1.0)[COLUMN]
    quiet_apps = (5, 5, 20)[COLUMN]
    noisy_users = (200, 200, 2_000)[COLUMN]
    noisy_phase_s = (6.0, 6.0, 600.0)[COLUMN]
    quiet_median_factor = (2.0, 2.0, 2.0)[COLUMN]
    quiet_p99_factor = (4.0, 4.0, 1.5)[COLUMN]
    # what a commit can take by itself on a machine that others use
    quiet_noise_s = (0.25, 0.25, 0.0)[COLUMN]

    # T01, T43: the pipeline under kills.
    pipeline_events = (400, 2_000, 20_000)[COLUMN]
    pipeline_kills = (1, 4, 12)[COLUMN]
    lease_left_ms = (500, 3_000, 45_000)[COLUMN]  # of those of a killed server, on PostgreSQL

    # T29: examples of each operation that schemathesis makes.
    fuzz_examples = (8, 8, 1_000)[COLUMN]
    has_all_roles = (False, False, True)[COLUMN]

    # T25: huge input.
    huge_body_bytes = (16 << 20, 16 << 20, 1 << 30)[COLUMN]
    nested_levels = (100_000, 100_000, 100_000)[COLUMN]

    # T26: HTTP/1.1 abuse.
    http_vectors = (60, 60, 400)[COLUMN]

    # T27: HTTP/2 floods.
    flood_s = (1.5, 1.5, 60.0)[COLUMN]

    # T28: slow clients.
    slow_connections = (200, 200, 5_000)[COLUMN]
    slow_s = (6, 6, 300)[COLUMN]

    # T18: messages to a provider, for each of its faults.
    provider_messages = (3, 3, 1_000)[COLUMN]
    provider_timeout_s = (5, 5, 8)[COLUMN]  # shorter than what comes at a byte a second
    # How the delay of one channel by another is measured: in rounds, since machines are shared.
    hanging_rounds = (5, 5, 20)[COLUMN]
    hanging_events = (15, 15, 100)[COLUMN]
    hanging_growth = (1.5, 1.5, 1.1)[COLUMN]  # of the p99; in CI, of the median

    # T24: events that cannot be rendered or sent, among others.
    poison_events = (300, 1_000, 100_000)[COLUMN]

    # T32: a topic that many follow.
    herd_users = (500, 2_000, 100_000)[COLUMN]
    herd_streams = (20, 50, 2_000)[COLUMN]

    # T37: idempotency keys, each sent a hundred times at once.
    idempotency_keys = (10, 60, 10_000)[COLUMN]
    idempotency_kills = (1, 2, 100)[COLUMN]

    # T39: users who are erased while notifications are delivered to them.
    erased_users = (4, 12, 1_000)[COLUMN]

    # Security item 27: a name server that changes its answers.
    rebinding_tries = (1_000, 10_000, 200_000)[COLUMN]

    # T35: leaks. In CI too short for a slope: only what grows without end is found.
    leak_warm_up_s = (6.0, 6.0, 900.0)[COLUMN]
    # 2,000 templates are cached, and each round has two
    leak_warm_up_renders = (0, 0, 1_100)[COLUMN]
    leak_slices = (2, 2, 30)[COLUMN]  # after each of them memory is measured
    leak_slice_s = (4.0, 4.0, 60.0)[COLUMN]
    leak_app_every_s = (0.0, 0.0, 10.0)[COLUMN]
    leak_floor_mib = (25.0, 25.0, 3.0)[COLUMN]
    leak_blocks_per_h = (float("inf"), float("inf"), 12000.0)[COLUMN]


# The marks of a crash test: `make test` has a small size of it.
CRASH = [
    pytest.mark.fault,
    pytest.mark.core,
    pytest.mark.rest,
    pytest.mark.timeout(SIZES.timeout_s),
]

"""Check that planted faults are caught: each mutant breaks the program, and its test must fail.

It works on a clone of the last commit in a temporary folder; the working tree is never changed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-q", "--lane", "core", "--tb=short", "-rfEp")
SIMULATE = (sys.executable, "-m", "tests.simulation.run", "--stop")
# The first line about a seed that breaks; the next one says how.
BROKEN = re.compile(r"seed (\d+) breaks, trace")
WHOLE = ("-n", "auto", "--dist", "worksteal", "-x")
# The exit code of pytest if tests failed; others mean that it could not run them.
TESTS_FAILED = 1


class Mutant(NamedTuple):
    """A fault: some text of a file in `src/clarion`, what replaces it, and the test that fails."""

    name: str
    file: str
    old: str
    new: str
    test: str


MUTANTS = (
    Mutant(
        "body-taken-for-a-request",
        "http/plain/connection.py",
        """\
        elif self._is_last and self._receiving is None:
            self._discard(size)
""",
        """\
        elif self._is_last:
            self._discard(size)
""",
        "tests/unit/http/plain/test_connection.py::"
        "test_the_body_of_the_last_request_is_read_though_it_comes_late",
    ),
    Mutant(
        "responses-out-of-order",
        "http/plain/connection.py",
        "                self._running = self._arrived.popleft()\n",
        "                self._running = self._arrived.pop()\n",
        "tests/unit/http/plain/test_connection.py::"
        "test_requests_that_are_sent_at_once_are_answered_in_order",
    ),
    Mutant(
        "response-with-a-line-end",
        "http/plain/wire.py",
        """        if not head.count(b"\\n") == head.count(b"\\r") == len(lines):\n""",
        "        if not head:\n",
        "tests/unit/http/plain/test_connection.py::test_a_header_with_a_line_end_is_never_sent",
    ),
    Mutant(
        "client-named-by-anybody",
        "http/plain/connection.py",
        "        is_named = self.is_proxied or not self._serving.is_proxy(self.host)\n",
        "        is_named = self.is_proxied or not self._first.startswith(bytes([13, 10]))\n",
        "tests/unit/http/plain/test_proxy_protocol.py::test_nobody_else_may_name_a_client",
    ),
    Mutant(
        "local-through-a-proxy",
        "http/strangers.py",
        """ or scope.get("is_proxied"):\n""",
        ":\n",
        "tests/unit/http/plain/test_proxy_protocol.py::test_a_proxy_names_its_client",
    ),
    Mutant(
        "listener-behind-open-to-others",
        "http/plain/tunnel.py",
        '        tunnel = self._by_port.get(scope["client"][1])\n',
        "        tunnel = next(iter(self._by_port.values()), None)\n",
        "tests/unit/http/plain/test_tunnel.py::test_nobody_else_may_use_the_listener_behind",
    ),
    Mutant(
        "what-a-delivery-says-is-lost",
        "history/sql/ended.py",
        "        if each.status in _AT_ONCE and each == _restore(source, decision):\n",
        "        if each.status in _AT_ONCE:\n",
        "tests/contract/test_ended_deliveries.py::test_one_that_says_more_is_a_row",
    ),
    Mutant(
        "answer-before-commit",
        "store/sqlite/runner.py",
        """\
        self._cursor.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._cursor.execute("COMMIT")
""",
        """\
        if self._connection.in_transaction:
            self._cursor.execute("COMMIT")
        self._cursor.execute("BEGIN IMMEDIATE")
        try:
            yield
""",
        "tests/contract/test_engine.py::test_a_unit_is_there_when_its_write_returns",
    ),
    Mutant(
        "answer-of-another",
        "store/sqlite/process.py",
        """\
        if not self._asked or self._asked[0][0] != number:
            self._break("the writer process answered another question")
            return False
""",
        """\
        while self._asked and self._asked[0][1].done():
            self._asked.popleft()
        if not self._asked:
            return True
""",
        "tests/unit/store/sqlite/test_child.py::test_the_answer_to_another_question_breaks_the_writer",
    ),
    Mutant(
        "sorted-by-the-locale",
        "store/migrations/0002_engine_specific.postgres.sql",
        """ALTER COLUMN %I TYPE TEXT COLLATE "C\"""",
        """ALTER COLUMN %I TYPE TEXT COLLATE "default\"""",
        "tests/contract/test_sorting.py::"
        "test_texts_are_compared_by_code_points_whatever_the_database_does",
    ),
    Mutant(
        "sent-again-when-full",
        "events/outcome_writer.py",
        "_Passing = Overloaded | StoreUnavailable | StorageFull",
        "_Passing = Overloaded | StoreUnavailable",
        "tests/unit/events/test_outcome_writer.py::"
        "test_an_outcome_is_written_again_until_the_store_has_it",
    ),
    Mutant(
        "ended-while-a-device-waits",
        "history/sql/endings.py",
        "AND {_IS_LAST} AND NOT {has_other(",
        "AND NOT {has_other(",
        "tests/contract/test_later_devices.py::"
        "test_a_device_gets_its_push_though_the_other_is_gone_meanwhile",
    ),
    Mutant(
        "failed-while-a-device-waits",
        "events/sending.py",
        "Reschedule(due_at=plan.next_at), bool(statuses & _ARRIVED)",
        "Reschedule(due_at=plan.next_at), True",
        "tests/contract/test_later_devices.py::"
        "test_a_device_gets_its_push_whatever_the_service_of_the_other_says",
    ),
    Mutant(
        "dead-digest-collects",
        "events/sql/jobs.py",
        "lane = CASE WHEN jobs.lane = {DEAD_LANE} THEN excluded.lane ELSE jobs.lane END",
        "lane = jobs.lane",
        "tests/contract/test_queue.py::test_a_new_part_revives_a_digest_that_is_a_dead_letter",
    ),
    Mutant(
        "preferences-overwritten",
        "events/sql/jobs.py",
        'f"""UPDATE jobs SET due_at = :now, {_PROGRESS} WHERE app_id',
        'f"""UPDATE jobs SET due_at = :now WHERE app_id',
        "tests/contract/test_queue.py::"
        "test_what_is_decided_while_preferences_change_is_decided_again",
    ),
    Mutant(
        "preferences-read-before",
        "events/leases.py",
        "return one // TOKEN_STEP == other // TOKEN_STEP",
        "return True",
        "tests/unit/events/test_leases.py::"
        "test_a_job_that_made_progress_is_begun_again_and_what_is_under_way_is_not_renewed",
    ),
    Mutant(
        "written-for-nobody",
        "store/group_commit.py",
        "[each for each in taken if not each[2].cancelled()]",
        "taken",
        "tests/contract/test_inboxes.py::"
        "test_a_caller_that_goes_away_does_not_count_beside_the_next_one",
    ),
    Mutant(
        "stored-and-not-announced",
        "events/outcome_writer.py",
        """\
                self._publish(each)
                await self._announce(each, is_repeat=True)
""",
        "                continue\n",
        "tests/unit/events/test_outcome_writer.py::"
        "test_an_outcome_whose_answer_was_lost_is_announced_and_not_done_again",
    ),
    Mutant(
        "gone-without-redis",
        "nodes/redis/bus.py",
        "self._members.note(numbers, now, self.list_living())",
        "self._members.note(numbers, now, {})",
        "tests/unit/nodes/test_redis_bus.py::"
        "test_a_node_that_does_not_count_is_silent_until_the_store_does_not_know_it",
    ),
    Mutant(
        "expired-after-delivered",
        "history/sql/endings.py",
        """\
        WHERE channel = '{PUSH}' AND status = 'sent' AND notification_id IN (
          {of_waiting(ending)})
        AND {_IS_LAST} AND NOT {has_other("deliveries.notification_id", ending)}\"""",
        """\
        WHERE channel = '{PUSH}' AND status IN ('sent', 'delivered') AND notification_id IN (
          {of_waiting(ending)})
        AND {_IS_LAST}\"""",
        "tests/contract/test_notification_messages.py::test_only_a_delivery_that_is_sent_ends",
    ),
    Mutant(
        "sent-though-collapsed",
        "push/sql/messages.py",
        '    _collapsed("notification_id IS NOT NULL", _STORED_MESSAGE),\n)\nEND_BEFORE_FAILURE',
        '    f"device_id = :device_id AND collapse_id = :collapse_id AND (sequence, id) <'
        ' {_STORED_MESSAGE}",\n)\nEND_BEFORE_FAILURE',
        "tests/contract/test_notification_messages.py::"
        "test_one_that_is_stored_after_a_newer_one_ends_its_delivery",
    ),
    Mutant(
        "secrets-sent-elsewhere",
        "channels/api.py",
        "if changed and missing:",
        "if changed and missing and not old.secrets:",
        "tests/e2e/test_providers.py::"
        "test_secrets_are_not_sent_to_another_server_unless_given_again",
    ),
    Mutant(
        "no-fsync-sqlite",
        "store/sqlite/runner.py",
        'synchronous: str = "FULL"',
        'synchronous: str = "NORMAL"',
        "tests/contract/test_engine.py::test_a_commit_waits_for_the_disk",
    ),
    Mutant(
        "no-fsync-postgres",
        "store/postgres/engine.py",
        '"synchronous_commit": "on"',
        '"synchronous_commit": "off"',
        "tests/contract/test_engine.py::test_a_commit_waits_for_the_disk",
    ),
    Mutant(
        "error-swallowed",
        "store/group_commit.py",
        "future.set_exception(_error_of(outcome))",
        "future.set_result(())",
        "tests/contract/test_engine.py::test_a_unit_that_fails_fails_alone",
    ),
    Mutant(
        "delivered-before-acknowledged",
        "push/dispatch.py",
        "return MessageStatus.PENDING, None",
        "return MessageStatus.DELIVERED, MessageReason.ACKNOWLEDGED",
        "tests/unit/push/test_dispatch.py::test_an_unacknowledged_message_is_sent_again",
    ),
    Mutant(
        "deleted-before-sent",
        "events/deliverer.py",
        "            attempt = self.sending.attempt\n",
        """\
            attempt = self.sending.attempt
            await self.writer.write([JobOutcome(job=waiting.job)])
""",
        "tests/contract/test_retry_schedule.py::test_the_last_attempt_can_succeed",
    ),
    Mutant(
        "no-fence",
        "events/sql/jobs.py",
        "DELETE FROM jobs WHERE id = :id AND token = :token",
        "DELETE FROM jobs WHERE id = :id AND token >= :token",
        "tests/contract/test_outcomes.py::test_an_old_token_is_refused",
    ),
    Mutant(
        "lost-wake-up",
        "events/turns.py",
        "            self._wake(1)\n",
        "",
        "tests/unit/events/test_turns.py::test_new_work_wakes_a_worker",
    ),
    Mutant(
        "wrong-fold",
        "events/decide/digests.py",
        "dt.time.fromisoformat(clock), zone)",
        "dt.time.fromisoformat(clock).replace(fold=1), zone)",
        "tests/unit/events/decide/test_digests.py::test_a_time_that_occurs_twice_is_due_at_the_first",
    ),
    Mutant(
        "guard-inverted",
        "events/sql/claims.py",
        "WHERE dedupes.expires_at <= :now",
        "WHERE dedupes.expires_at > :now",
        "tests/contract/test_outcomes.py::test_a_lost_key_is_refused",
    ),
    Mutant(
        "cursor-off-by-one",
        "history/sql/listings.py",
        "AND id < :before_id",
        "AND id <= :before_id",
        "tests/contract/test_inboxes.py::test_the_list_is_newest_first_and_whole",
    ),
    Mutant(
        "no-app-id",
        "events/sql/events.py",
        "WHERE app_id = :app_id\n    AND id = :id AND (status",
        "WHERE id = :id AND (status",
        "tests/contract/test_events.py::test_events_of_another_app_cannot_be_cancelled_or_replayed",
    ),
    Mutant(
        "idempotency-shared-by-apps",
        "http/idempotency.py",
        'now, app_id = self.clock.now(), caller.app_id or ""',
        'now, app_id = self.clock.now(), ""',
        "tests/e2e/test_tenants.py::test_an_idempotency_key_a_dedupe_key_and_a_template_are_of_one_app",
    ),
    Mutant(
        "cache-never-invalidated",
        "access/callers.py",
        "        self._cache.forget(key_id)\n        self._verified.forget_all()\n",
        "        del key_id\n",
        "tests/unit/access/test_callers.py::test_a_forgotten_key_is_looked_up_at_once",
    ),
    Mutant(
        "no-jitter",
        "events/schedules.py",
        "* random.uniform(1, 1 + SPREAD)",
        "* 1",
        "tests/unit/events/test_schedules.py::test_waits_are_spread_and_come_to_an_end",
    ),
    Mutant(
        "retry-after-ignored",
        "channels/answers.py",
        "error_message=message, after_s=after)",
        "error_message=message, after_s=None)",
        "tests/unit/channels/test_webhook.py::test_the_wait_that_is_asked_for_is_kept",
    ),
    Mutant(
        "unread-not-decremented",
        "inbox/sql/inboxes.py",
        '_count_if("count_one_less", IS_UNREAD, "- 1")',
        '_count_if("count_one_less", IS_UNREAD, "- 0")',
        "tests/contract/test_inboxes.py::test_reading_counts_once",
    ),
    Mutant(
        "digest-part-twice",
        "events/digester.py",
        "[part for part, _ in left]",
        "[part for part, _ in left * 2]",
        "tests/contract/test_pipeline_cases.py"
        "::test_a_digest_is_sent_at_its_time_despite_changes_before",
    ),
    Mutant(
        "expired-sent",
        "push/session.py",
        "            if self._clock_offset.has_passed(message.expires_at, now):\n",
        "            if message.expires_at <= 0:\n",
        "tests/unit/push/test_session.py::test_a_message_that_has_expired_is_dropped_and_not_sent",
    ),
    Mutant(
        "secret-in-clear",
        "access/keys.py",
        "return hashlib.sha256(self.secret.encode()).digest()",
        "return self.secret.encode()",
        "tests/unit/access/test_keys.py::test_the_hash_has_256_bits_and_not_the_secret",
    ),
    Mutant(
        "acknowledged-by-another",
        "push/sql/messages.py",
        "reason = 'acknowledged', updated_at = :now\n    WHERE device_id = :device_id",
        "reason = 'acknowledged', updated_at = :now\n    WHERE :device_id <> ''",
        "tests/contract/test_messages.py::test_a_device_acknowledges_its_own_messages_alone",
    ),
    Mutant(
        "first-address-only",
        "channels/targets.py",
        "_has_refused(addresses, self.allowed)",
        "_has_refused(addresses[:1], self.allowed)",
        "tests/unit/channels/test_targets.py::test_every_address_of_a_name_is_checked",
    ),
    Mutant(
        "sent-when-read",
        "events/decide/rules.py",
        """    ("read", check_read),\n""",
        "",
        "tests/contract/test_pipeline_cases.py::test_what_is_held_is_dropped_if_it_was_read",
    ),
    Mutant(
        "digest-of-old-zone",
        "events/digester.py",
        "return find_due(digest, delivery.decided_at, user.timezone)",
        "return delivery.until or 0",
        "tests/contract/test_pipeline_cases.py::test_a_daily_digest_moves_with_its_user",
    ),
)

WIDTH = max(len(each.name) for each in MUTANTS)


class OutdatedError(Exception):
    """The program has changed, and the mutant does not fit it any more."""


class Copy:
    """A clone of the last commit, in which mutants are planted and tests run."""

    def __init__(self, folder: Path) -> None:
        self._tree, self._output = folder / "clarion", folder / "output"
        subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(self._tree)], check=True)
        # Found before the editable install of the working tree; servers under test inherit it.
        self._environment = {**os.environ, "PYTHONPATH": str(self._tree / "src")}
        command = [sys.executable, "-c", "import clarion; print(clarion.__file__, end='')"]
        place = subprocess.check_output(
            command, cwd=self._tree, env=self._environment, encoding="utf-8"
        )
        if not Path(place).is_relative_to(self._tree):
            sys.exit(f"The tests would run {place}, not the copy.")

    def check_tests(self, tests: Sequence[str]) -> None:
        """Exit if one of the tests is not in `make test`, or fails without a mutant."""
        code = self._run_pytest(tests)
        passed = {each.partition("[")[0] for each in self._list("PASSED")}
        if code or passed != set(tests):
            missing = sorted(set(tests) - passed)
            sys.exit(f"{self._output.read_text()}\nNot all pass without a mutant. {missing=}")

    def find_failed(self, mutant: Mutant, *, is_whole: bool) -> str | None:
        """Plant a mutant, and return the test that failed, None if there is none."""
        with self._planted(mutant):
            code = self._run_pytest(WHOLE if is_whole else [mutant.test])
        found = self._list("FAILED")
        if not is_whole:
            found = [each for each in found if each.partition("[")[0] == mutant.test]
        if code == TESTS_FAILED and found:
            return found[0]
        if code:  # the row alone would not say why this is no failure of the test
            print(self._output.read_text(), file=sys.stderr)
        return None

    def find_broken(self, mutant: Mutant, seeds: int) -> str | None:
        """Plant a mutant, and return the first seed of the simulator that breaks, and how."""
        with self._planted(mutant):
            self._run([*SIMULATE, "--seeds", str(seeds)], self._environment)
        lines = self._output.read_text().splitlines()
        for number, line in enumerate(lines):
            if found := BROKEN.match(line):
                return f"seed {found[1]}: {lines[number + 1].strip()}"
        print(lines[-1], file=sys.stderr)
        return None

    @contextmanager
    def _planted(self, mutant: Mutant) -> Iterator[None]:
        path = self._tree / "src" / "clarion" / mutant.file
        original = path.read_text()
        if (count := original.count(mutant.old)) != 1:
            raise OutdatedError(f"its text occurs {count} times in {mutant.file}")
        write_module(path, original.replace(mutant.old, mutant.new))
        try:
            yield
        finally:
            write_module(path, original)

    def _run_pytest(self, arguments: Sequence[str]) -> int:
        environment = dict(self._environment)
        if all(each.startswith("tests/unit/") and "/nodes/" not in each for each in arguments):
            environment["CLARION_TEST_SERVERS"] = "none"  # saves the time of their start
        return self._run([*PYTEST, *arguments], environment)

    def _run(self, command: Sequence[str], environment: Mapping[str, str]) -> int:
        with (
            self._output.open("w") as output,
            subprocess.Popen(
                command, cwd=self._tree, env=environment, stdout=output, stderr=output
            ) as running,
        ):
            try:
                return running.wait()
            except KeyboardInterrupt:
                running.wait()  # it was interrupted too, and stops its servers
                raise

    def _list(self, outcome: str) -> list[str]:
        """Return the tests with an outcome, from the summary that pytest prints."""
        start = f"{outcome} "
        lines = self._output.read_text().splitlines()
        found = (line.removeprefix(start) for line in lines if line.startswith(start))
        return [line.partition(" - ")[0] for line in found]


def write_module(path: Path, text: str) -> None:
    path.write_text(text)
    # Python would use the bytecode of the old text if it has the same size and second.
    for cached in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
        cached.unlink()


def check(mutant: Mutant, find: Callable[[Mutant], str | None]) -> bool:
    """Print the row of a mutant; return whether it is caught."""
    began, failed = time.monotonic(), None
    try:
        failed = find(mutant)
        caught_by = failed or "NOT CAUGHT"
    except OutdatedError as error:
        caught_by = f"OUTDATED: {error}"
    print_row(mutant.name, caught_by, f"{time.monotonic() - began:.0f}")
    return failed is not None


def print_row(name: str, caught_by: str, seconds: str) -> None:
    print(f"{name:<{WIDTH}} | {caught_by} | {seconds}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="these mutants, or else all")
    parser.add_argument("--whole", action="store_true", help="run all of `make test` for each")
    parser.add_argument(
        "--simulate", type=int, metavar="SEEDS", help="run the simulator for each, up to so many"
    )
    options = parser.parse_args()
    known = [each.name for each in MUTANTS]
    if unknown := [each for each in options.names if each not in known]:
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(known)}")
    chosen = [each for each in MUTANTS if each.name in (options.names or known)]
    if subprocess.check_output(["git", "status", "--porcelain", "src", "tests"], cwd=ROOT):
        print("What is not committed in src and tests is left out.", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="clarion-mutants-") as folder:
        copy = Copy(Path(folder))
        find: Callable[[Mutant], str | None]
        if options.simulate:
            find = partial(copy.find_broken, seeds=options.simulate)
        else:
            copy.check_tests(sorted({each.test for each in chosen}))
            find = partial(copy.find_failed, is_whole=options.whole)
        print_row("name", "caught by", "seconds")
        caught = [check(each, find) for each in chosen]
    sys.exit(not all(caught))


if __name__ == "__main__":
    main()

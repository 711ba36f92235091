# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""The invented project's test suite: which tests there are, and what pytest prints about them."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from demo.tree import ROOT, UNOPENED, Tree

# Tests of the files that are never opened, by file; a name with :a,b,c is parametrised.
NAMES = {
    "tests/test_api_berths.py": """lists_only_berths_in_service filters_by_length filters_by_draught:180,200,240
        shows_free_berths_for_a_stay an_unknown_harbour_answers_404 a_stay_longer_than_allowed_answers_422
        labels_are_padded the_office_takes_a_berth_out_of_service skippers_may_not_change_berths""",
    "tests/test_api_invoices.py": """issuing_needs_a_completed_booking numbers_have_no_gaps a_skipper_sees_only_their_own
        the_pdf_link_expires a_credit_note_refers_to_its_invoice totals_match_the_lines:net,vat,gross
        downloading_twice_gives_the_same_bytes reminders_stop_after_payment""",
    "tests/test_api_waitlist.py": """joining_answers_201 joining_twice_answers_the_same_entry the_sixth_entry_answers_429
        leaving_answers_204 leaving_twice_answers_204 entries_of_others_stay_hidden the_office_sees_everybody""",
    "tests/test_expiry.py": """nothing_to_do_writes_nothing overdue_holds_are_released a_hold_that_ends_now_is_released
        confirmed_bookings_are_left_alone locked_rows_are_left_to_the_other_worker it_stops_at_the_batch_limit
        every_release_writes_one_event a_released_berth_can_be_held_again""",
    "tests/test_invoices.py": """one_line_per_rate_change shore_power_is_its_own_line
        vat_is_rounded_per_line:0,7,19 a_refund_becomes_a_credit_note the_deposit_is_deducted
        zero_invoices_are_not_issued numbers_restart_each_year foreign_currency_is_refused the_sum_of_lines_is_the_total
        a_line_names_its_nights the_due_date_skips_sundays""",
    "tests/test_layers.py": """api_does_not_import_models_directly:berths,bookings,invoices,meters,waitlist
        services_do_not_import_fastapi:bookings,invoices,meters,payments,tariffs,waitlist
        repositories_do_not_import_services:berths,bookings,invoices,meters,tariffs,waitlist
        only_tariffs_calls_date_on_an_instant""",
    "tests/test_meters.py": """a_reading_below_the_last_is_refused a_meter_may_roll_over:99999,999999 readings_in_the_future_are_refused
        consumption_is_split_between_stays an_idle_meter_costs_nothing a_replaced_meter_starts_anew
        two_readings_on_one_day_keep_the_later consumption_over_a_clock_change:spring,autumn""",
    "tests/test_notify.py": """unknown_kinds_are_refused uuids_become_text events_are_written_in_the_transaction
        a_rollback_takes_the_event_with_it due_events_come_oldest_first events_give_up_after_eight_attempts
        a_sent_event_is_not_due two_workers_share_the_queue""",
    "tests/test_tariffs.py": """local_date_needs_an_aware_instant
        local_date_at_midnight:Europe/Lisbon,Europe/Berlin,Atlantic/Azores,UTC
        local_date_over_a_clock_change:spring-before,spring-after,autumn-before,autumn-after
        a_stay_has_as_many_nights_as_days:1,2,7,30 metres_are_rounded_up:999,1000,1001
        later_lines_overrule_earlier_ones the_minimum_applies_to_small_boats multihulls_pay_half_more
        a_hole_in_the_book_is_an_error shore_power_is_per_night refund_by_days_left:20,14,13,3,2,0
        any_stay_costs_the_sum_of_its_nights a_longer_boat_never_pays_less""",
    "tests/test_waitlist.py": """joining_writes_an_event joining_twice_is_one_entry another_harbour_is_another_entry
        five_entries_are_enough closed_entries_do_not_count leaving_closes leaving_somebody_elses_entry_does_nothing
        candidates_come_in_order_of_joining candidates_fit:length,draught,power,dates candidates_are_limited
        a_longer_wish_does_not_fit""",
    "tests/test_webhooks.py": """a_wrong_signature_answers_401 an_old_timestamp_answers_401 a_payment_confirms_the_hold
        a_late_payment_is_refunded the_same_event_twice_is_one_payment:sequential,concurrent unknown_events_answer_202
        a_payment_for_nothing_is_logged partial_payments_add_up""",
}
SLOW = ("tests/test_tariffs.py::test_any_stay", "tests/test_tariffs.py::test_a_longer_boat", "tests/test_webhooks.py")


def _parametrised(text: str) -> dict[str, list[str]]:
    """Parameter ids of tests in an opened file, by test name, in the order pytest makes them."""
    ids: dict[str, list[str]] = {}
    for match in re.finditer(r"@pytest\.mark\.parametrize\(\s*(.*?)\n?\s*\)\n(?:async )?def (test_\w+)", text, re.S):
        rows = re.findall(r"\(((?:\"[^\"]*\"(?:, )?)+)\)", match[1])[1:]
        single = re.findall(r"\"([^\"]*)\"", match[1].partition("[")[2])
        values = ["-".join(re.findall(r'"([^"]*)"', row)) for row in rows] or single
        ids[match[2]] = values
    return ids


def node_ids(tree: Tree, under: str = "tests") -> list[str]:
    """Node ids of every test below a path, in the order in which pytest collects them."""
    ids = []
    for path in sorted({*(p for p in tree.files if re.match(r"tests/test_\w+\.py", p)), *NAMES}):
        if path in NAMES:
            for word in NAMES[path].split():
                name, _, values = word.partition(":")
                names = [f"test_{name}[{value}]" for value in values.split(",")] if values else [f"test_{name}"]
                ids += [f"{path}::{name}" for name in names]
        else:
            text = tree.files[path]
            params = _parametrised(text)
            for name in re.findall(r"^(?:async )?def (test_\w+)", text, re.M):
                ids += [f"{path}::{name}[{value}]" for value in params.get(name, [])] or [f"{path}::{name}"]
    return [node for node in ids if node.startswith(under)]


@dataclass(frozen=True)
class Frame:
    """One level of a traceback: the function, the text of its failing line, and local variables worth showing."""

    path: str
    function: str
    at: str
    locals: dict[str, str] = field(default_factory=dict)
    arguments: str = ""


@dataclass(frozen=True)
class Failure:
    node: str
    frames: Sequence[Frame]
    error: str
    log: Sequence[str] = ()


def run(
    tree: Tree,
    rng: random.Random,
    *,
    under: str = "tests",
    failures: Sequence[Failure] = (),
    verbose: bool = False,
    durations: int = 0,
    stop_first: bool = False,
) -> str:
    """What pytest prints. Failing nodes must exist; their tracebacks quote the files as they are now."""
    nodes = node_ids(tree, under)
    failing = {failure.node for failure in failures}
    unknown = failing - set(nodes)
    if unknown:
        raise LookupError(f"no such tests: {sorted(unknown)}")
    nodes_run = nodes[: nodes.index(failures[0].node) + 1] if stop_first and failures else nodes
    seconds = 0.06 * len(nodes_run) + rng.uniform(0.5, 2.5)
    out = [_rule("test session starts", "=")]
    if verbose:
        out += [
            f"platform linux -- Python 3.12.7, pytest-8.3.3, pluggy-1.5.0 -- {ROOT}/.venv/bin/python",
            "cachedir: .pytest_cache",
            "hypothesis profile 'ci' -> deadline=None, derandomize=True",
        ]
    else:
        out += ["platform linux -- Python 3.12.7, pytest-8.3.3, pluggy-1.5.0"]
    out += [
        f"rootdir: {ROOT}",
        "configfile: pyproject.toml",
        "plugins: anyio-4.6.0, asyncio-0.24.0, cov-5.0.0, hypothesis-6.112.1",
        "asyncio: mode=Mode.AUTO, default_loop_scope=session",
        f"collected {len(nodes)} items",
        "",
    ]
    if verbose:
        for number, node in enumerate(nodes_run, 1):
            word = "FAILED" if node in failing else "PASSED"
            percent = f"[{100 * number // len(nodes):3d}%]"
            out.append(f"{node} {word}".ljust(92) + percent)
    else:
        done = 0
        for path in dict.fromkeys(node.partition("::")[0] for node in nodes_run):
            own = [node for node in nodes_run if node.startswith(path + "::")]
            done += len(own)
            marks = "".join("F" if node in failing else "." for node in own)
            out.append(f"{path} {marks}".ljust(92) + f"[{100 * done // len(nodes):3d}%]")
    out.append("")
    if failures:
        out += [_rule("FAILURES", "=")]
        for failure in failures:
            out += _traceback(tree, failure)
    if durations:
        out += [_rule(f"slowest {durations} durations", "=")]
        pool = [node for node in nodes_run if node.startswith(SLOW)] + rng.sample(nodes_run, min(30, len(nodes_run)))
        times = sorted((rng.uniform(0.05, 2.4) for _ in range(durations)), reverse=True)
        for took, node in zip(times, dict.fromkeys(pool), strict=False):
            out.append(f"{took:.2f}s {rng.choice(['call    ', 'call    ', 'setup   '])} {node}")
    if failures:
        out += [_rule("short test summary info", "=")]
        out += [f"FAILED {failure.node} - {failure.error.splitlines()[0]}" for failure in failures]
        if stop_first:
            out.append("!" * 32 + " stopping after 1 failures " + "!" * 33)
    counts = f"{len(failing)} failed, " if failing else ""
    out.append(_rule(f"{counts}{len(nodes_run) - len(failing)} passed in {seconds:.2f}s", "="))
    return "\n".join(out)


def _rule(title: str, mark: str) -> str:
    return f" {title} ".center(100, mark)


def _traceback(tree: Tree, failure: Failure) -> list[str]:
    out = [_rule(failure.node.partition("::")[2], "_"), ""]
    for number, frame in enumerate(failure.frames):
        if number:
            out += ["", "_ " * 50, ""]
        if frame.arguments:
            out += [frame.arguments, ""]
        first, source = tree.function_source(frame.path, frame.function)
        hit = next(index for index, line in enumerate(source) if frame.at in line)
        out += ["    " + line if line else "" for line in source[:hit]]
        out.append(">   " + source[hit])
        last = number == len(failure.frames) - 1
        if last:
            out += [f"E       {line}" for line in failure.error.splitlines()]
        if frame.locals:
            out += [""] + [f"{name:<10} = {value}" for name, value in frame.locals.items()]
        kind = failure.error.partition(":")[0].split(".")[-1] if last else ""
        out += ["", f"{frame.path}:{first + hit}: {kind}".rstrip()]
    if failure.log:
        out += [_rule("Captured stdout call", "-"), *failure.log]
    return out


def coverage(tree: Tree, rng: random.Random) -> str:
    """A coverage table of the package, as pytest-cov prints it with missing lines."""
    rows, total, missed = [], 0, 0
    for path in sorted(p for p in {*tree.files, *UNOPENED} if p.startswith("src/") and p.endswith(".py")):
        text = tree.files.get(path, "")
        statements = sum(bool(s) and not s.startswith(("#", '"', ")")) for s in map(str.strip, text.split("\n")))
        statements = statements or (0 if path.endswith("__init__.py") else rng.randint(24, 140))
        gaps = sorted(rng.sample(range(20, 20 + max(statements, 8)), rng.choice([0, 0, 1, 3, 5]))) if statements else []
        miss = len(gaps)
        total, missed = total + statements, missed + miss
        percent = 100 if not statements else round(100 * (statements - miss) / statements)
        branches = statements // 6
        lines = ", ".join(f"{gap}-{gap + 2}" if gap % 3 == 0 else str(gap) for gap in gaps)
        rows.append(
            f"{path:<52}{statements:>6}{miss:>7}{branches:>8}{min(miss, branches) // 2:>8}{percent:>6}%   {lines}"
        )
    head = f"{'Name':<52}{'Stmts':>6}{'Miss':>7}{'Branch':>8}{'BrPart':>8}{'Cover':>7}   Missing"
    bar = "-" * 110
    foot = (
        f"{'TOTAL':<52}{total:>6}{missed:>7}{total // 6:>8}{missed // 3:>8}{round(100 * (total - missed) / total):>6}%"
    )
    return "\n".join(
        [f"{'-' * 20} coverage: platform linux, python 3.12.7-final-0 {'-' * 20}", head, bar, *rows, bar, foot]
    )

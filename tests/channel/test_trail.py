"""The egress trail: a line for all that leaves, across starts; and whoever changes one is noticed."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest
import torch

from cutlayer.channel import Kind, link
from cutlayer.channel.trail import Trail, content_digest, verify_trail
from cutlayer.errors import RunFolderError


def write(folder, messages=5, end=True):
    """One start of a party that sends some messages, and the file that it wrote."""
    here, _ = link("telco", "bank", "run 7")
    trail = Trail(folder, {"party": "telco", "job": "loans", "ledger": ["dp_embedding: epsilon 1.8"]})
    here.record = trail.record
    for step in range(messages):
        here.send(Kind.EMBEDDING, epoch=0, step=step, tensors={"embedding": torch.full((4, 2), float(step))})
    if end:
        here.send(Kind.COMMITTED, epoch=0)
        trail.close()
    else:
        os.close(trail._file)
    return folder / trail._name


def lines_of(path):
    return path.read_text().splitlines(keepends=True)


def test_every_message_has_a_line_that_says_what_it_was(tmp_path):
    (file,) = [write(tmp_path / "trail")]
    header, *entries = [json.loads(line)["entry"] for line in lines_of(file)]
    assert (header["party"], header["run"], header["before"]) == ("telco", "run 7", "")
    assert [entry["kind"] for entry in entries] == ["embedding"] * 5 + ["committed"]
    assert entries[3]["shape"] == {"embedding": [4, 2]}
    assert (entries[3]["to"], entries[3]["step"], entries[3]["bytes"]) == ("bank", 3, 32)
    assert len({entry["digest"] for entry in entries}) == 6
    assert file.stat().st_mode & 0o077 == 0
    found = verify_trail(tmp_path / "trail")
    assert (found.problems, found.lines) == ((), 7)
    assert found.files[0].sent == {("bank", "embedding"): (5, 160), ("bank", "committed"): (1, 0)}


def test_nothing_is_written_before_something_leaves(tmp_path):
    Trail(tmp_path / "trail", {}).close()
    assert not (tmp_path / "trail").exists()
    with pytest.raises(RunFolderError, match="expected the files of an egress trail"):
        verify_trail(tmp_path / "trail")


def test_the_line_is_there_before_the_message_leaves(tmp_path):
    here, _ = link("telco", "bank", "run")
    trail = Trail(tmp_path, {})
    seen = []
    here.record, here.transmit = trail.record, lambda message: seen.append(len(lines_of(tmp_path / "000001.jsonl")))
    here.send(Kind.COMMITTED, epoch=0)
    trail.close()
    assert seen == [2]


def test_a_later_start_continues_the_chain_and_leaves_earlier_files_alone(tmp_path):
    first = write(tmp_path)
    before = first.read_bytes()
    write(tmp_path, end=False)
    write(tmp_path)
    assert first.read_bytes() == before
    found = verify_trail(tmp_path)
    assert not found.problems
    assert [file.name for file in found.files] == ["000001.jsonl", "000002.jsonl", "000003.jsonl"]


def test_two_processes_at_once_each_continue_what_was_there(tmp_path):
    here, _ = link("telco", "bank", "run")
    first, second = Trail(tmp_path, {}), Trail(tmp_path, {})
    for trail in (first, second, first, second, first):
        here.record = trail.record
        here.send(Kind.COMMITTED, epoch=0)
    first.close()
    second.close()
    assert verify_trail(tmp_path).problems == ()
    assert verify_trail(tmp_path).lines == 7


def test_a_killed_process_leaves_a_trail_that_verifies(tmp_path):
    path = write(tmp_path, end=False)
    raw = path.read_bytes()
    path.write_bytes(raw[:-20])
    found = verify_trail(tmp_path)
    assert not found.problems
    assert found.files[0].incomplete
    assert found.lines == 5
    write(tmp_path)
    assert not verify_trail(tmp_path).problems


def changed(path, number, edit):
    lines = lines_of(path)
    lines[number] = edit(lines[number])
    path.write_text("".join(lines))


TAMPERINGS = {
    "a changed number": lambda path: changed(path, 2, lambda line: line.replace('"bytes":32', '"bytes":33')),
    "a changed receiver": lambda path: changed(path, 2, lambda line: line.replace('"to":"bank"', '"to":"nobody"')),
    "a changed header": lambda path: changed(path, 0, lambda line: line.replace("epsilon 1.8", "epsilon 0.1")),
    "a removed line": lambda path: changed(path, 3, lambda line: ""),
    "a repeated line": lambda path: changed(path, 3, lambda line: line + line),
    "no header": lambda path: changed(path, 0, lambda line: ""),
    "rubbish": lambda path: changed(path, 3, lambda line: "rubbish\n"),
    "a line that is no object": lambda path: changed(path, 3, lambda line: "[]\n"),
    "a missing last line": lambda path: changed(path, -1, lambda line: ""),
    "an empty file": lambda path: path.write_text(""),
    "a missing file": lambda path: path.unlink(),
}


@pytest.mark.parametrize("what", TAMPERINGS)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_change_is_noticed_in_any_file(tmp_path, what, which):
    paths = [write(tmp_path) for _ in range(3)]
    TAMPERINGS[what](paths[which])
    if what == "a missing file" and which == 2:
        assert verify_trail(tmp_path).problems == ("000003.jsonl is missing",)
        return
    problems = verify_trail(tmp_path).problems
    assert problems
    assert any(paths[which].name in problem or paths[min(which + 1, 2)].name in problem for problem in problems)


def test_two_swapped_lines_are_noticed(tmp_path):
    path = write(tmp_path)
    lines = lines_of(path)
    path.write_text("".join([*lines[:2], lines[3], lines[2], *lines[4:]]))
    assert verify_trail(tmp_path).problems[0] == "000001.jsonl, line 3: it was changed, or a line before it was removed"


def test_a_trail_that_was_changed_is_not_continued(tmp_path):
    TAMPERINGS["a changed number"](write(tmp_path))
    with pytest.raises(RunFolderError, match=r"000001\.jsonl, line 3: it was changed"):
        write(tmp_path)


def test_a_line_with_a_recomputed_hash_breaks_the_next_one(tmp_path):
    """Who changes one line must change all that follow, and the head."""
    from cutlayer.channel.trail import _body, _chain_hash

    path = write(tmp_path)
    lines = [json.loads(line) for line in lines_of(path)]
    lines[2]["entry"]["bytes"] = 1
    lines[2]["hash"] = _chain_hash(lines[1]["hash"], _body(lines[2]["entry"]))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "line 4" in verify_trail(tmp_path).problems[0]


@pytest.mark.parametrize("line", [0, 2, -1])
def test_a_file_that_was_written_anew_is_not_that_of_the_head(tmp_path, line):
    """With as many lines, and the hash of each recomputed: only the head tells, whichever line was changed."""
    from cutlayer.channel.trail import _body, _chain_hash

    write(tmp_path)
    path = write(tmp_path)
    lines = [json.loads(text) for text in lines_of(path)]
    lines[line]["entry"]["time"] = "1999-01-01T00:00:00.000+00:00"
    before = lines[0]["entry"]["before"]
    for each in lines:
        before = each["hash"] = _chain_hash(before, _body(each["entry"]))
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    assert verify_trail(tmp_path).problems == (
        f"{path.name}: expected at least 7 lines, as head.json says, got 7 of them",
    )


@pytest.mark.parametrize(
    ("number", "entry"),
    [(0, {"before": "", "time": "now", "ledger": 5}), (0, {"before": ""}), (1, []), (1, {"time": "now", "bytes": "x"})],
)
def test_a_line_with_a_right_hash_must_still_be_one_of_a_trail(tmp_path, number, entry):
    """The hash needs no secret: a reader must not fail on what anyone can write."""
    from cutlayer.channel.trail import _body, _chain_hash

    path = write(tmp_path)
    before = json.loads(lines_of(path)[number - 1])["hash"] if number else ""
    body = {"hash": _chain_hash(before, _body(entry)), "entry": entry}
    path.write_text("".join([*lines_of(path)[:number], json.dumps(body) + "\n"]))
    assert f"line {number + 1}: it was changed" in verify_trail(tmp_path).problems[0]


@pytest.mark.parametrize("head", ["[]", '{"000001.jsonl": 5}', '{"000001.jsonl": ["x", "y"]}', '{"a": [-9, ""]}', "5"])
def test_a_damaged_head_is_named(tmp_path, head):
    write(tmp_path)
    (tmp_path / "head.json").write_text(head)
    with pytest.raises(RunFolderError, match=r"head\.json is damaged"):
        verify_trail(tmp_path)


def test_other_files_in_the_folder_are_no_part_of_it(tmp_path):
    write(tmp_path)
    (tmp_path / "²³.jsonl").write_text("x")  # digits to Python, and no number
    assert not verify_trail(tmp_path).problems


def test_a_line_that_fits_on_the_disk_in_part_is_written_to_its_end(tmp_path, monkeypatch):
    """`write` takes what fits; a message must not leave after half a line."""
    whole = os.write
    monkeypatch.setattr("cutlayer.channel.trail.os.write", lambda file, data: whole(file, bytes(data)[:7]))
    path = write(tmp_path)
    monkeypatch.undo()
    assert not verify_trail(tmp_path).problems
    assert lines_of(path)[-1].endswith("}\n")


def test_the_digest_is_of_all_that_a_message_holds():
    here, _ = link("telco", "bank", "run")
    zeros = {"embedding": torch.zeros(4, 2)}
    digests = [
        content_digest(here.send(Kind.EMBEDDING, step=0, tensors=zeros)),
        content_digest(here.send(Kind.EMBEDDING, step=0, tensors={"embedding": torch.zeros(2, 4) - 1})),
        content_digest(here.send(Kind.CLOSE, fields={"reason": "done"})),
        content_digest(here.send(Kind.CLOSE, fields={"reason": "gone"})),
    ]
    kinds = Kind.REMASKED, Kind.MASKED
    digests += [
        content_digest(here.send(kind, step=0, tensors={"points": torch.zeros(2, 32).byte()})) for kind in kinds
    ]
    assert len(set(digests)) == 5
    renamed = SimpleNamespace(fields={}, tensors={"other": torch.zeros(2, 32).byte()})
    assert content_digest(renamed) not in digests
    assert content_digest(here.send(Kind.EMBEDDING, step=9, tensors=zeros)) == digests[0]

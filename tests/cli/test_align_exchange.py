"""`cutlayer align --exchange` as a scheduler runs it: the same command, until its exit code says that it is done."""

from __future__ import annotations

import json


def test_the_exit_code_says_whether_to_repeat(place):
    for name, columns in (("bank", "id,age,label"), ("telco", "id,calls")):
        lines = (f"{row},{row % 7}" + f",{row % 2}" * (name == "bank") for row in range(60))
        (place.folder / f"{name}.csv").write_text("\n".join([columns, *lines]))
    assert place.call("init", ".", "--apart", "--yes", "--overwrite").code == 0
    ended = dict.fromkeys(("bank", "telco"), 0)
    for _ in range(8):
        for name in ended:
            out = place.folder / f"{name}-rows.csv"
            options = ("--as", name, "--local", f"{name}.yaml", "--exchange", "x", "--out", out, "--json")
            result = place.call("align", "job.yaml", *options, "--plaintext")
            assert result.code == (0 if out.exists() else 5), result
            answered = json.loads(result.out)
            assert ("waiting_for" in answered) is (result.code == 5)
            ended[name] += result.code == 0
            assert ended[name] < 2 or answered["common"] == 60
    assert min(ended.values()) > 1  # repeated after its end, without a word of what is wrong

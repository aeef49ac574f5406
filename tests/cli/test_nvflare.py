"""`cutlayer nvflare` from the command line; what it writes is tested in tests/nvflare."""

from __future__ import annotations

from tests.cli.jobs import Place


def test_the_verb(place: Place) -> None:
    result = place.call("nvflare", place.file, "--out", "made", "--site", "bank=site-1", "--json").document()
    assert result["sites"] == {"bank": "site-1", "telco": "telco"}
    assert place.call("nvflare", place.file, "--out", "made").code == 2  # it holds a job already
    result = place.call("nvflare", place.file, "--out", "more")
    assert "telco: site telco, which needs local/cutlayer/" in result.out
    assert "left out: " in result.out
    for wrong, message in (
        (("--site", "bank"), "--site PARTY=SITE"),
        (("--site", "bank=a", "--site", "bank=b"), "--site bank=SITE once, got it twice"),
        (("--resume-job", "x"), "the id of an NVFlare"),
    ):
        result = place.call("nvflare", place.file, "--out", "third", *wrong)
        assert result.code == 2
        assert message in result.error

from __future__ import annotations

import base64
import io
import struct
import zlib

import pytest

from cutlayer.attacks.knowledge import Need
from cutlayer.report.html import render_html
from cutlayer.report.markdown import table_markdown
from cutlayer.report.png import png
from cutlayer.report.rounding import interval, metric
from cutlayer.report.section import Table
from cutlayer.results.report import Report
from tests.report.conftest import Sample
from tests.report.reading import Page, answers, cells_of, markdown_of, section_of
from tests.report.samples import regression, short
from tests.report.test_terminal import printed


def decoded(data: bytes) -> tuple[tuple[int, int, int], bytes]:
    """Channels, height, width and the pixels, channel by channel, of a PNG file; checks its sums."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    file, parts = io.BytesIO(data[8:]), {}
    while head := file.read(8):
        length, kind = struct.unpack(">I4s", head)
        body = file.read(length)
        assert struct.unpack(">I", file.read(4))[0] == zlib.crc32(kind + body)
        parts[kind] = body
    width, height, depth, colour, *rest = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert (depth, rest) == (8, [0, 0, 0])
    channels = {0: 1, 2: 3}[colour]
    lines, stride = zlib.decompress(parts[b"IDAT"]), channels * width + 1
    assert len(lines) == height * stride
    assert set(lines[::stride]) == {0}
    woven = b"".join(lines[row * stride + 1 : (row + 1) * stride] for row in range(height))
    return (channels, height, width), b"".join(woven[at::channels] for at in range(channels))


def with_pictures() -> Report:
    raw = short()
    truth, rebuilt = bytes(range(12)), bytes(range(100, 112))
    pictures = [
        {"title": title, "psnr": value, "ssim": like, "shape": [3, 2, 2]}
        | {"truth": base64.b64encode(truth).decode(), "rebuilt": base64.b64encode(rebuilt).decode()}
        for title, value, like in (("best", 31.234, 0.912), ("median", 20.5, None), ("worst", 9.876, 0.123))
    ]
    raw["features"][0]["pictures"] = pictures
    return Report.model_validate(raw)


@pytest.mark.parametrize("shape", [(1, 3, 5), (3, 4, 2)])
def test_a_png_holds_the_pixels(shape: tuple[int, int, int]) -> None:
    channels, height, width = shape
    pixels = bytes(at * 7 % 256 for at in range(channels * height * width))
    assert decoded(png(pixels, shape)) == (shape, pixels)


@pytest.mark.parametrize(("pixels", "shape"), [(b"12", (2, 1, 1)), (b"12", (1, 1, 1))])
def test_what_is_no_image_is_refused(pixels: bytes, shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="in 1 or 3 channels"):
        png(pixels, shape)


def test_the_pictures_are_on_the_page_and_inside_it() -> None:
    page = Page(render_html(with_pictures()))
    shown = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(shown) == 6
    assert all(each["src"].startswith("data:image/png;base64,") for each in shown)
    found = [decoded(base64.b64decode(item["src"].partition(",")[2])) for item in shown]
    assert found == [((3, 2, 2), bytes(range(12))), ((3, 2, 2), bytes(range(100, 112)))] * 3
    assert "worst, true and rebuilt: PSNR 9.876 dB, SSIM 0.123" in page.text
    assert all(one["alt"] for one in shown)


def test_bytes_that_are_no_image_leave_the_page_whole() -> None:
    raw = with_pictures().model_dump(mode="json")
    raw["features"][0]["pictures"][0] |= {"truth": '"><script>alert(1)</script>', "rebuilt": "AAAA"}
    page = Page(render_html(Report.model_validate(raw)))
    assert [attributes["src"] for tag, attributes in page.tags if tag == "img"][:2] == ["data:,"] * 2


def attacks_of(report: Report) -> Table:
    """The table of every attack and run."""
    section = section_of(report, "features")
    assert section is not None
    return next(block for block in section.brief if isinstance(block, Table) and "Attacks" in block.caption)


def test_each_figure_stands_beside_the_one_without_an_embedding(sample: Sample) -> None:
    report = sample.report
    table = next(table for table in sample.page.tables if "Attacks on features" in table)
    for part, line in zip(report.features, table_markdown(attacks_of(report)).splitlines()[2:], strict=True):
        for text in (metric(part.value), interval(part.low, part.high), metric(part.baseline), f"{part.rows:,}"):
            assert text in table
            assert text in line


def test_the_answer_names_what_is_read_of_all_columns_and_the_farthest_of_the_rest(sample: Sample) -> None:
    report = sample.report
    own = [result for result in report.features if result.run == "this run"]
    part = max((one for one in own if one.attack != "inversion"), key=lambda one: one.value - one.baseline)
    (text,) = (answer.text for answer in answers(report) if answer.question == "Feature leakage")
    assert f"{part.attack} on the embeddings of {part.party}" in text
    assert metric(part.value) in text
    for one in own:
        assert (f"of the columns of {one.party}: R\u00b2 {metric(one.value)}" in text) is (one.attack == "inversion")
    assert " ".join(text.split()) in sample.page.text


def test_known_rows_are_counted_and_apart_from_the_attacked_ones(report: Report, brief: Report) -> None:
    (run, other), needs = ("this run", "undefended"), (Need.AUXILIARY_FEATURES,)
    part = report.features[0]
    own = [part.model_copy(update={"run": name, "known": 512, "knowledge": needs}) for name in (run, other)]
    page = Page(render_html(brief.model_copy(update={"features": tuple(own)}))).text
    assert f"{part.attack} knows the features of 512 released rows. " in page
    assert "up to 1,000 rows" not in page.partition("What each attack does")[0]
    differing = (own[0], own[1].model_copy(update={"known": 400}))
    page = Page(render_html(brief.model_copy(update={"features": differing}))).text
    assert f"{part.attack} knows the features of 512 released rows (this run)." in page
    assert f"{part.attack} knows the features of 400 released rows (undefended)." in page
    assert cells_of(attacks_of(report), "Attacked") == [f"{x.rows:,}" for x in report.features]


def test_the_terminal_has_every_line(report: Report) -> None:
    text = printed(report)
    assert "Feature leakage from embeddings" in text
    assert all(metric(part.value) in text for part in report.features)


def test_without_an_attack_on_features_there_is_no_section() -> None:
    report = Report.model_validate(regression())
    assert section_of(report, "features") is None
    assert "Feature leakage" not in [answer.question for answer in answers(report)]
    assert 'id="features"' not in render_html(report)
    assert markdown_of(report, "features") == ""

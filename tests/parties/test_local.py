"""What one party has and decides alone."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from cutlayer.config.party import AuditConfig
from cutlayer.parties.session.local import LocalSide
from cutlayer.parties.session.state import order_with_batches, rows_of_order
from tests.parties.runs import make_job


def test_half_of_a_transcripts_size_is_for_whole_steps():
    local = SimpleNamespace(name="bank", config=SimpleNamespace(audit=AuditConfig(max_megabytes=3)))
    sampling = LocalSide.sampling(local, make_job(), steps=4, batch_size=8)
    assert sampling.limit == 3 * 2**19


def local_of(name: str = "bank", secret: bytes = b"s" * 32, noise: bytes = b"n" * 32, **more: Any) -> Any:
    party = SimpleNamespace(label="late")
    made = SimpleNamespace(name=name, secret=secret, noise_key=noise, config=party, folder=Path("/run"), **more)
    made.releases = Path("/secrets")
    return made


def test_the_release_logs_of_a_job_share_a_folder_whatever_its_rows_and_each_run_has_its_own() -> None:
    """Else a run would not count those that did not end, or would count on in the log of another."""
    job = make_job()
    base = LocalSide.release_log(local_of(), job, b"rows")
    assert base.path is not None
    assert LocalSide.release_log(local_of(), job, b"others").path == base.path
    again = LocalSide.release_log(local_of(noise=b"m" * 32), job, b"rows").path
    assert again is not None
    assert again != base.path
    assert again.parent == base.path.parent
    for local, other in ((local_of("shop"), job), (local_of(secret=b"t" * 32), job), (local_of(), make_job(seed=9))):
        path = LocalSide.release_log(local, other, b"rows").path
        assert path is not None
        assert path.parent != base.path.parent
    stated = {"party": "bank", "job": job.digest(), "rows": b"rows".hex(), "folder": "/run"}
    assert base.identity == stated
    local = local_of()
    local.releases = None
    inside = LocalSide.release_log(local, job, b"rows")
    assert inside.path == Path("/run/checkpoint/bank/releases") / base.path.parent.name / base.path.name


def test_draws_are_the_same_where_all_that_they_depend_on_is() -> None:
    """A memory names the draws whatever the labels are now; without one the labels and the table decide them."""
    y, n = torch.tensor([0, 1]), torch.tensor([1, 1])

    def fingerprint(draws: tuple[str | None, ...], rows: bytes = b"r", truth: Tensor = y, **more: Any) -> str:
        table = SimpleNamespace(labels_digest=more.pop("labels", b"digest"))
        local = local_of(table=table, **more)
        local.config.label = more.pop("column", "late")
        return LocalSide.draw_fingerprint(local, draws, rows, truth)

    remembered = fingerprint(("memory 0",))
    assert fingerprint(("memory 0",), truth=n, labels=b"other") == remembered
    others = {
        fingerprint(("memory 1",)),
        fingerprint(("memory 0",), b"s"),
        fingerprint(("memory 0",), secret=b"t" * 32),
    }
    others |= {fingerprint(("memory 0",), column="other"), fingerprint((None,)), fingerprint((None,), truth=n)}
    others |= {fingerprint((None,), labels=b"other"), fingerprint(("memory 0", None))}
    assert len(others | {remembered}) == 9


def test_row_numbers_name_other_rows_in_a_table_of_other_labels() -> None:
    digests = np.arange(48, dtype=np.uint8).reshape(3, 16)
    tables = [
        SimpleNamespace(id_kind=kind, labels_digest=bytes([flip] * 16)) for kind in ("row", "str") for flip in (1, 2)
    ]
    numbered, of_others, named, of_named = (LocalSide.draw_ids(local_of(table=table), digests) for table in tables)
    assert not (numbered == of_others).any()
    assert (named == digests).all()
    assert (of_named == digests).all()


def test_a_checkpoint_is_of_the_batches_too_where_they_are_drawn_by_ids() -> None:
    def of(steps: int, *, drawn: bool) -> bytes:
        job, schedule = SimpleNamespace(draws_batches=drawn), SimpleNamespace(steps_per_epoch=steps)
        return order_with_batches(cast("Any", job), b"o" * 16, cast("Any", schedule))

    assert of(4, drawn=True) != of(5, drawn=True)
    assert of(4, drawn=False) == of(5, drawn=False) == b"o" * 16
    assert rows_of_order(of(4, drawn=True).hex()) == (b"o" * 16).hex()

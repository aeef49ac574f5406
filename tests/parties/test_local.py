"""What one party has and decides alone."""

from types import SimpleNamespace

from cutlayer.config.party import AuditConfig
from cutlayer.parties.local import Local
from tests.parties.runs import make_job


def test_half_of_a_transcripts_size_is_for_whole_steps():
    local = SimpleNamespace(name="bank", config=SimpleNamespace(audit=AuditConfig(max_megabytes=3)))
    sampling = Local.sampling(local, make_job(), steps=4, batch_size=8)
    assert sampling.limit == 3 * 2**19

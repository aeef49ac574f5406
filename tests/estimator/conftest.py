from __future__ import annotations

from collections.abc import Iterator

import pytest

from cutlayer.audit.attack_audit import AttackAudit
from cutlayer.jobs import audit


@pytest.fixture(scope="module", autouse=True)
def _columns_are_not_attacked() -> Iterator[None]:
    """An estimator can only name attacks on labels; to attack the columns of every fit takes a tenth of its time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit, "audit_features", lambda *_: AttackAudit())
        yield

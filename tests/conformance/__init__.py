"""What every registered protection and attack must pass; importable, so that an outside one can be held to it."""

import pytest

pytest.register_assert_rewrite(f"{__name__}.suite")

"""One suite per port, run on every engine. A suite is a list of promises; each quotes a sentence of its port."""

import pytest

for _suite in ("slots_suite", "counters_suite", "catalog_suite", "members_suite", "store_data"):
    pytest.register_assert_rewrite(f"tests.contract.{_suite}")

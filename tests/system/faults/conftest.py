"""One deployment for all fault tests: its start and end cost more than most of the faults."""

from collections.abc import Iterator

import pytest

from tests.system.faults.fault_deployment import FaultDeployment, deploy_for_faults


@pytest.fixture(scope="package")
def fault_deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultDeployment]:
    """At its end `seriatim check` finds nothing in the stores, after all faults together."""
    with deploy_for_faults(tmp_path_factory.mktemp("faults")) as deployment:
        yield deployment
        deployment.check_stores()

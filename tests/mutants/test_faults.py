"""The faults fit the code as it is; whether the tests notice them is for `make mutants`."""

import pytest

from tests.mutants.__main__ import ROOT
from tests.mutants.faults import FAULTS, Fault


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_line_of_each_fault_is_there_once(fault: Fault) -> None:
    """Else `make mutants` could not put it there."""
    text = (ROOT / "dispatch" / fault.file).read_text()
    assert (1, True) == (text.count(fault.line), fault.line != fault.fault)

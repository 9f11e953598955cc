from pathlib import Path

import pytest

from tests.toolkit.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    root = tmp_path / "root"
    root.mkdir()
    return Bench(root)

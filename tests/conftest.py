"""What all tests share: the folder of real graphs, and the division of a run among processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("gate", max_examples=50)  # the whole suite shall take minutes
settings.load_profile("gate")

os.environ.setdefault("GODWIT_DEVICES", "cpu")  # tests name the GPUs that they use

_REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """As many processes as there are cores, within reason; ``-n 0`` has none besides this one."""
    from scheduling import process_count

    return process_count(config.args)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests stay with those that share their compiled code."""
    from scheduling import FileScheduling

    return FileScheduling(config, log)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Only one process works on the GPU: marks are what the scheduler groups by."""
    if item.get_closest_marker("gpu") is not None:
        item.add_marker(pytest.mark.xdist_group("gpu"))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real graphs: ``GODWIT_DATA``, else ``../shared/data`` beside the checkout."""
    folder = Path(os.environ.get("GODWIT_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no graph data: {folder} is absent (set GODWIT_DATA)")
    return folder

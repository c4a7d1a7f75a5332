"""What all tests share: the folder of real graphs, and a private cache for compiled code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("gate", max_examples=50)  # the whole suite shall take minutes
settings.load_profile("gate")

os.environ.setdefault("GODWIT_DEVICES", "cpu")  # tests name the GPUs that they use

_REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of real graphs: ``GODWIT_DATA``, else ``../shared/data`` beside the checkout."""
    folder = Path(os.environ.get("GODWIT_DATA", _REPOSITORY.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no graph data: {folder} is absent (set GODWIT_DATA)")
    return folder

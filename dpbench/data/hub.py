"""Files of dataset repositories on the Hugging Face hub, resumed by its own client and checked against its SHA-256."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from dpbench.errors import DataError
from dpbench.files import sha256


def fetch(wanted: Sequence[tuple[str, str]], downloads: Path, root: Path) -> None:
    """Put files (repository, path in it) below `root`, as repository/path; `downloads` keeps parts that came.

    Raises:
        DataError: the hub does not answer, or a file is not the one it lists.
    """
    import huggingface_hub

    for repository, file in wanted:
        folder = downloads / repository
        try:
            listed = huggingface_hub.HfApi().get_paths_info(repository, [file], repo_type="dataset")
            got = Path(huggingface_hub.hf_hub_download(repository, file, repo_type="dataset", local_dir=folder))
        except Exception as error:  # the hub's client raises a dozen kinds
            raise DataError(
                f"Expected {file} of {repository} from the Hugging Face hub, got {type(error).__name__}. What came is "
                "kept: try again when the hub can be reached, or download it elsewhere and run `dpbench data import`."
            ) from error
        expected = next((lfs.sha256 for one in listed if (lfs := getattr(one, "lfs", None))), None)
        if expected not in {None, sha256(got)}:
            shutil.rmtree(folder)
            raise DataError(f"Expected SHA-256 {expected} of {file} of {repository}, got another; try again.")
        place = root / repository / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(got, place)

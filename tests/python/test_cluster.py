"""A cluster in small: each worker with a mount of its own, over S3; scripts/cluster is the same in large."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import clusters
import distributed
import numpy
import pytest
from clusters import Field
from documents import docstrings
from place import Place, execute, place, s3, web  # noqa: F401
from servers import ROOT, Moto

import fzmfs

WORKERS = 2


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[distributed.Client, Field, Moto]]:
    with clusters.served(tmp_path_factory.mktemp("cluster"), mib=16, parts=16, workers=WORKERS) as all_of_it:
        yield all_of_it


def test_workers_that_share_a_cache_on_disk_sum_the_array(
    served: tuple[distributed.Client, Field, Moto], tmp_path: Path
) -> None:
    client, field, _ = served
    for _ in range(2):
        clusters.check_sums(client, field, tmp_path / "cache")


def test_a_worker_whose_daemon_is_killed_mounts_again(served: tuple[distributed.Client, Field, Moto]) -> None:
    client, field, _ = served
    clusters.check_killed(client, field)


def test_a_job_whose_object_is_replaced_fails(
    served: tuple[distributed.Client, Field, Moto], tmp_path: Path
) -> None:
    client, field, server = served
    try:
        clusters.check_replaced(client, field, server, Field(tmp_path / "other.b2nd", 16, 16, seed=1))
    finally:
        server.put(clusters.KEY, field.path.read_bytes())


def test_a_version_that_is_not_expected_is_not_mounted(served: tuple[distributed.Client, Field, Moto]) -> None:
    client, _, _ = served
    with pytest.raises(OSError, match="the object has the ETag"):
        client.register_plugin(clusters.Mount(clusters.URL, program=clusters.program(), expect="another"))


def test_windows_from_far_away_are_those_of_the_file(tmp_path: Path) -> None:
    clusters.program()
    field = Field(tmp_path / "x.b2nd", 16, 16)
    clusters.check_windows(field, tmp_path, WORKERS, tasks=4, rounds=1)


def test_the_lines_of_the_recipe_sum_the_array(served: tuple[distributed.Client, Field, Moto], place: Place) -> None:
    client, field, _ = served
    piece, *_ = docstrings(ROOT / "src/cli/man/cluster/dask_mount.py")
    # Where the workers find the program.
    client.run(lambda path: os.environ.update(PATH=path), place.environment("")["PATH"])
    names = {"fzmfs": fzmfs, "numpy": numpy, "Mount": clusters.Mount, "mounted": clusters.mounted, "client": client}
    names |= {"parts": len(field.sums), "size": field.slab, "__name__": "__main__"}
    assert client.gather(execute(place.put(piece.text), names)) == field.sums

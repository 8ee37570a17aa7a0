"""The engine ``fzmfs`` of xarray: the arrays of a container as lazy variables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from xarray.backends import BackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup

from ._doors import opened
from ._groups import Groups

if TYPE_CHECKING:
    from xarray import Dataset, DataTree

    from ._archive import Archive

# Files that are always of arrays.
_SUFFIXES = (".fzm", ".b2nd", ".b2z", ".zt", ".ztensor")


class Backend(BackendEntrypoint):
    """``xarray.open_dataset(source, engine="fzmfs")``.

    ``source`` is what :func:`fzmfs.open` takes, or an archive that is open; ``options`` are those of :func:`fzmfs.open`
    by name. Each array is a variable, read where it is indexed, with the dimensions that ``data.zarr`` names, preferred
    chunks, and the metalayers of Blosc2 as attributes; those of the CF conventions are decoded. Arrays with a slash in
    their names are in groups: ``group="buffers"``, or ``xarray.open_datatree``.
    """

    description = "Arrays in FZM, Blosc2 and zTensor files, decoded as they are read"
    supports_groups = True
    open_dataset_parameters = (
        "filename_or_obj",
        "group",
        "options",
        # What StoreBackendEntrypoint decodes after the CF conventions.
        "mask_and_scale",
        "decode_times",
        "concat_characters",
        "decode_coords",
        "drop_variables",
        "use_cftime",
        "decode_timedelta",
    )

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: str | os.PathLike[str] | Archive,
        *,
        group: str | None = None,
        options: dict[str, Any] | None = None,
        **decoders: Any,
    ) -> Dataset:
        """The arrays of one group as a dataset: of the root, or of ``group``.

        Raises:
            ValueError: there is no such group, or the container has no element types.
            fzmfs.Error: the container cannot be opened, or an attribute is broken.
        """
        with Groups(*opened(filename_or_obj, options or {})) as groups:
            return groups.dataset((group or "").strip("/"), decoders)

    def open_groups_as_dict(  # type: ignore[override]
        self,
        filename_or_obj: str | os.PathLike[str] | Archive,
        *,
        group: str | None = None,
        options: dict[str, Any] | None = None,
        **decoders: Any,
    ) -> dict[str, Dataset]:
        """``group`` and all groups below it as datasets, by their paths from there. Raises as ``open_dataset``."""
        datasets: dict[str, Dataset] = {}
        # Of the dimensions of a group and those above; in a tree, each has one size.
        sizes: dict[str, dict[Any, int]] = {}
        with Groups(*opened(filename_or_obj, options or {})) as groups:
            root = (group or "").strip("/")
            for full in groups.below(root):
                path = full[len(root) :].strip("/")
                above = sizes.get(path.rpartition("/")[0], {}) if path else {}
                dataset = datasets[f"/{path}"] = groups.dataset(full, decoders, above)
                sizes[path] = {**above, **dataset.sizes}
        return datasets

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """The same as a tree."""
        return datatree_from_dict_with_io_cleanup(self.open_groups_as_dict(filename_or_obj, **options))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether the name of the file says that it has arrays."""
        return isinstance(filename_or_obj, (str, os.PathLike)) and os.fspath(filename_or_obj).endswith(_SUFFIXES)

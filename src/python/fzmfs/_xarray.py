"""The engine ``fzmfs`` of xarray: the arrays of a container as lazy variables, opened by xarray's engine for Zarr."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from xarray import Dataset, decode_cf
from xarray.backends import BackendEntrypoint, ZarrBackendEntrypoint
from xarray.backends.common import datatree_from_dict_with_io_cleanup

from ._directory import Directory
from ._doors import is_missing, opened, zarr_store
from ._errors import Error
from ._xarray_directory import dataset as whole
from ._xarray_directory import directory_of, groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from xarray import DataTree

    from ._archive import Archive

# Options that decode nothing.
_PLAIN: dict[str, Any] = {"mask_and_scale": False, "decode_times": False, "decode_coords": False}
# Files that are always of arrays.
_SUFFIXES = (".fzm", ".b2nd", ".b2z", ".b2d", ".mla", ".zt", ".ztensor")


class Backend(BackendEntrypoint):
    """``xarray.open_dataset(source, engine="fzmfs")``.

    ``source`` is what :func:`fzmfs.open` takes, or an archive that is open; ``options`` are those of :func:`fzmfs.open`
    by name. It is ``data.zarr`` (:func:`fzmfs.zarr_store`) as xarray opens it: each array is a variable with its
    dimensions, chunks and attributes; those of the CF conventions are decoded. Arrays with a slash in their names are in
    groups: ``group="buffers"``, or ``xarray.open_datatree``.

    A directory of containers is a tree of them; one that xarray-blosc2 wrote is also a dataset, as its own reader gives it,
    decoded if the call says so.
    """

    description = "Arrays in FZM, Blosc2 and zTensor files, decoded as they are read"
    supports_groups = True
    open_dataset_parameters = (
        "filename_or_obj",
        "group",
        "options",
        # What xarray decodes after the CF conventions.
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
            ImportError: zarr-python 3.1.3 or later is not installed.
            ValueError: there is no such group, or the container has no element types.
            fzmfs.Error: the container cannot be opened.
        """
        if (directory := directory_of(filename_or_obj, options)) is not None:
            if group:
                return self.open_dataset(directory[group], **decoders)  # type: ignore[arg-type]
            found = whole(directory, lambda archive: self.open_dataset(archive, **_PLAIN))
            dropped = decoders.pop("drop_variables", None) or []
            found = found.drop_vars([dropped] if isinstance(dropped, str) else dropped, errors="ignore")
            found = decode_cf(found, **decoders) if any(decoders.values()) else found
            found.set_close(directory.close)
            return found
        with _Opened(filename_or_obj, options) as source:
            dataset: Dataset = source.ordered(source.open(source.zarr.open_dataset, group, decoders), group)
            source.hand_over(dataset)
        return dataset

    def open_groups_as_dict(  # type: ignore[override]
        self,
        filename_or_obj: str | os.PathLike[str] | Archive,
        *,
        group: str | None = None,
        options: dict[str, Any] | None = None,
        **decoders: Any,
    ) -> dict[str, Dataset]:
        """``group`` and all groups below it as datasets, by their paths from there. Raises as ``open_dataset``."""
        if (directory := directory_of(filename_or_obj, options)) is not None:
            member = directory[group] if group else directory
            if not isinstance(member, Directory):
                return self.open_groups_as_dict(member, **decoders)
            found = groups(member, lambda archive: self.open_groups_as_dict(archive, **decoders))
            found["/"].set_close(directory.close)
            return found
        with _Opened(filename_or_obj, options) as source:
            by_path: dict[str, Dataset] = source.open(source.zarr.open_groups_as_dict, group, decoders)
            datasets = {path: source.ordered(dataset, f"{group or ''}/{path}") for path, dataset in by_path.items()}
            for dataset in datasets.values():
                source.hand_over(dataset)
        return datasets

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> DataTree:
        """The same as a tree."""
        return datatree_from_dict_with_io_cleanup(self.open_groups_as_dict(filename_or_obj, **options))

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Whether the name of the file says that it has arrays."""
        return isinstance(filename_or_obj, (str, os.PathLike)) and os.fspath(filename_or_obj).endswith(_SUFFIXES)


class _Opened:
    """An archive and its store. A ``with`` statement closes them after an error, if they were opened here."""

    def __init__(self, source: str | os.PathLike[str] | Archive, options: dict[str, Any] | None) -> None:
        self._archive, self._owned = opened(source, options or {})
        self.zarr = ZarrBackendEntrypoint()
        self._how: dict[str, Any] = {}

    def __enter__(self) -> _Opened:
        try:
            store = zarr_store(self._archive)
        except BaseException as error:
            self._close()
            if isinstance(error, Error) and is_missing(error):
                why = f"{self._archive.source} has no arrays; for bytes give options=dict(dtype=..., shape=...)"
                raise ValueError(why) from None
            raise
        self._how = {"filename_or_obj": store, "consolidated": not store.lists_members, "zarr_format": 3}
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._close()

    def _close(self) -> None:
        if self._owned:
            self._archive.close()

    def open(self, function: Callable[..., Any], group: str | None, decoders: dict[str, Any]) -> Any:
        """What ``function`` of xarray's engine for Zarr opens."""
        try:
            return function(group=group, **self._how, **decoders)
        except (KeyError, FileNotFoundError) as error:
            if group is None or isinstance(error, Error):
                raise
            raise ValueError(f"{self._archive.source} has no group {group!r}") from None

    def ordered(self, dataset: Dataset, group: str | None) -> Dataset:
        """``dataset`` of ``group`` with its variables as the archive has them: members that zarr-python lists come in any order."""
        if self._how["consolidated"]:
            return dataset
        inside = "".join(part + "/" for part in (group or "").split("/") if part)
        names = [name.removeprefix(inside) for name in self._archive if name.startswith(inside)]
        first = [name for name in names if name in dataset.data_vars]
        order = first + [name for name in dataset.data_vars if name not in first]
        ordered = Dataset({name: dataset[name].variable for name in order}, dataset.coords, dataset.attrs)
        ordered.encoding = dataset.encoding
        return ordered

    def hand_over(self, dataset: Dataset) -> None:
        """Lets ``dataset`` close the archive, and warns of what is not in it."""
        if self._owned:
            dataset.set_close(self._archive.close)
        left_out = dict(dataset.attrs.get("left_out", {}))
        if self._how["consolidated"]:
            apart = dataset.attrs.get("not_consolidated", {})
            left_out |= {name: f"zarr-python has no {kind if isinstance(kind, str) else kind['name']} here; ml_dtypes has it" for name, kind in apart.items()}
        if left_out:
            why = "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
            warnings.warn(f"arrays left out: {why}", stacklevel=4)

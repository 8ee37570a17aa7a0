"""Directories of containers in xarray: a tree of all of them, and the datasets that xarray-blosc2 writes."""

from __future__ import annotations

import json
import os
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray

from ._archive import Archive
from ._directory import Directory
from ._doors import is_missing
from ._errors import Error

if TYPE_CHECKING:
    from collections.abc import Callable

    from xarray import Dataset

# The suffix of the files of a dataset, and what the names of those begin with that are for its writer, or coordinates.
_SUFFIX = ".b2nd"
_HIDDEN = "_"
_COORDINATE = "_coord_"
# The sizes of a scalar coordinate, which is stored as one element.
_SCALAR = ("_scalar",)


def directory_of(source: Any, options: dict[str, Any] | None) -> Directory | None:
    """The directory that ``source`` is, or leads to."""
    if isinstance(source, Directory):
        return source
    if not isinstance(source, (str, os.PathLike)):
        return None
    path = os.fsdecode(source)
    if not (path.endswith("/") or os.path.isdir(path)):
        return None
    from . import open

    found: Any = open(path, **(options or {}))
    if isinstance(found, Directory):
        return found
    found.close()
    return None


def groups(directory: Directory, open_groups: Callable[[Archive], dict[str, Dataset]]) -> dict[str, Dataset]:
    """The containers in ``directory``, and in those below it, by their paths; what cannot be opened is told."""
    found = {"/": xarray.Dataset()}
    for name in directory:
        try:
            member = directory[name]
            below = groups(member, open_groups) if isinstance(member, Directory) else open_groups(member)
        except (Error, ValueError) as error:
            warnings.warn(f"left out: {error}", stacklevel=4)
            continue
        found |= {f"/{name}{path}".rstrip("/"): dataset for path, dataset in below.items()}
    return found


def dataset(directory: Directory, open_dataset: Callable[[Archive], Dataset]) -> Dataset:
    """The variables and coordinates that xarray-blosc2 wrote to ``directory``, as its own reader gives them.

    Raises:
        ValueError: there are none, or they are encoded in a way of xarray-blosc2 alone.
    """
    about = _json(directory, "dataset.json")
    if encoded := [word for word in ("geogrid", "zstd_dict") if about.get(word)]:
        raise ValueError(f"{directory.source}: xarray-blosc2 encoded it ({', '.join(encoded)}): only its own reader decodes that")
    attributes = dict(about.get("attrs", {}))
    if lineage := about.get("lineage"):
        attributes["lineage"] = lineage if isinstance(lineage, str) else json.dumps(lineage)
    variables: dict[str, Any] = {}
    coordinates: dict[str, Any] = {}
    for file in sorted(name for name in directory if name.endswith(_SUFFIX)):
        stem = file.removesuffix(_SUFFIX)
        archive = directory[file]
        if not isinstance(archive, Archive):
            continue
        if stem.startswith(_HIDDEN) and not stem.startswith(_COORDINATE):
            if stem == "_commit":
                attributes["committed_extent"] = int(np.asarray(archive["data"]).item())
            continue
        layers = _layers(archive)
        name = layers.get("coord_name") or layers.get("var") or stem
        variable = _variable(archive, layers, about.get("variable_attrs", {}).get(name, {}), open_dataset)
        (coordinates if layers.get("is_coord") else variables)[name] = variable
    if not variables and not coordinates:
        raise ValueError(f"{directory.source} is a directory of containers: xarray.open_datatree opens it")
    found = xarray.Dataset(variables, coordinates, attributes)
    extent = attributes.get("committed_extent")
    return found if extent is None or "time" not in found.dims else found.isel(time=slice(0, extent))


def _variable(
    archive: Archive, layers: dict[str, Any], more: dict[str, Any], open_dataset: Callable[[Archive], Dataset]
) -> xarray.Variable:
    """The variable in ``archive``: its attributes are in metalayers, and ``more`` of them in the description of all."""
    attributes: dict[str, Any] = {name: layers[name] for name in ("units", "long_name") if name in layers}
    if isinstance(text := layers.get("attrs"), str):
        own = json.loads(text)
        attributes |= own if isinstance(own, dict) else {}
    attributes |= more
    dimensions = tuple(layers.get("dims") or [f"dim_{d}" for d in range(archive["data"].ndim)])
    if layers.get("is_coord") and layers.get("dtype") == "string":
        return xarray.Variable(dimensions, np.array(layers.get("labels", [])), attributes)
    if layers.get("is_coord") and dimensions == _SCALAR:
        return xarray.Variable((), np.asarray(archive["data"]).ravel()[0], attributes)
    variable = open_dataset(archive)["data"].variable
    return xarray.Variable(dimensions, variable._data, attributes, variable.encoding)


def _layers(archive: Archive) -> dict[str, Any]:
    """The variable-length metalayers of the array of an archive."""
    try:
        files = archive.files("vlmetalayers", recursive=False)
    except Error as error:
        if is_missing(error):
            return {}
        raise
    suffix = ".json"
    paths = {file.path.rpartition("/")[2].removesuffix(suffix): file.path for file in files if file.path.endswith(suffix)}
    return {name: json.loads(archive.read(path)) for name, path in paths.items()}


def _json(directory: Directory, name: str) -> dict[str, Any]:
    """What the file ``name`` says; nothing if it is not there. Of a server only containers are read."""
    path = os.path.join(directory.source, name)
    if "://" in directory.source or not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        said: dict[str, Any] = json.load(file)
    return said


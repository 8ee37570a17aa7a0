"""Packs the Python module for the tests: make_wheel.py LIBRARY DIRECTORY. Prints the path of the wheel.

LIBRARY is what `cargo build` makes of src/python: for this machine, or a .dll for Windows. Name, dependencies and entry
points are those of pyproject.toml. The wheel has no program; scripts/package makes the one for others.
"""

import base64
import hashlib
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(library: str, directory: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    name, info = project["name"], f"{project['name']}-{version}.dist-info"
    is_windows = library.endswith(".dll")
    tag = f"cp310-abi3-{'win_amd64' if is_windows else 'linux_x86_64'}"

    package = ROOT / "src/python" / name
    files = {f"{name}/{file.name}": file.read_bytes() for file in sorted(package.iterdir()) if file.is_file()}
    files[f"{name}/_native.{'pyd' if is_windows else 'abi3.so'}"] = Path(library).read_bytes()
    metadata = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Python: {project['requires-python']}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in project["dependencies"]]
    for extra, requirements in project["optional-dependencies"].items():
        metadata.append(f"Provides-Extra: {extra}")
        metadata += [f"Requires-Dist: {requirement}; extra == '{extra}'" for requirement in requirements]
    points = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in own.items()) for group, own in project["entry-points"].items()]
    wheel = ["Wheel-Version: 1.0", "Generator: make_wheel", "Root-Is-Purelib: false", f"Tag: {tag}"]
    files[f"{info}/METADATA"] = "\n".join([*metadata, ""]).encode()
    files[f"{info}/WHEEL"] = "\n".join([*wheel, ""]).encode()
    files[f"{info}/entry_points.txt"] = "\n".join(points).encode()

    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()

    made = Path(directory) / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    print(made)


main(*sys.argv[1:])

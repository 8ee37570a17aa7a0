"""The examples for clusters that packages bring: run where that is possible, else checked against the program."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest
import yaml
from clusters import program
from conftest import DATA, PATIENCE
from servers import ROOT

EXAMPLES = ROOT / "src/cli/man/cluster"
SOURCE = DATA / "blosc2/n05_5d_f4.b2nd"


class Slurm:
    """Runs prolog and epilog as slurmd does: as root, with nothing but its own variables, below a directory of ours."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("the prolog of Slurm is run by root")
        self.folder = folder
        bin = folder / "bin"
        bin.mkdir()
        (bin / "fzmfs").symlink_to(program())
        # In place of syslog.
        (bin / "logger").write_text(f'#!/bin/sh\necho "$3" >>{folder}/log\n')
        (bin / "logger").chmod(0o755)
        for name in ("fzmfs.prolog", "fzmfs.epilog"):
            text = (EXAMPLES / name).read_text()
            for path in ("/run/fzmfs", "/var/cache/fzmfs", "/etc/fzmfs"):
                text = text.replace(path, f"{folder}{path}")
            (folder / name).write_text(text.replace("PATH=", f"PATH={bin}:", 1))

    @property
    def point(self) -> Path:
        return self.folder / "run/fzmfs/17"

    def run(self, name: str, comment: str | None) -> None:
        user = pwd.getpwuid(0).pw_name
        environment = {"SLURM_JOB_ID": "17", "SLURM_JOB_USER": user, "SLURM_JOB_UID": "0"}
        if comment is not None:
            environment["SLURM_JOB_COMMENT"] = comment
        # Slurm waits for all that the script has started and that holds on to its output.
        done = subprocess.run(["/bin/sh", self.folder / name], env=environment, capture_output=True, timeout=PATIENCE)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


def test_the_prolog_of_slurm_mounts_and_the_epilog_unmounts(slurm: Slurm) -> None:
    slurm.run("fzmfs.prolog", f"fzmfs cache=16M {SOURCE}")
    assert (slurm.point / "data.raw").stat().st_size == 10080
    assert slurm.point.stat().st_uid == 0 and (slurm.folder / "var/cache/fzmfs/root").is_dir()
    slurm.run("fzmfs.epilog", None)
    assert not slurm.point.exists() and not (slurm.folder / "log").exists()


def test_the_epilog_clears_what_a_killed_daemon_has_left(slurm: Slurm) -> None:
    slurm.run("fzmfs.prolog", f"fzmfs cache=16M {SOURCE}")
    os.kill(int(os.getxattr(slurm.point, "user.fzmfs.daemon.pid")), 9)
    slurm.run("fzmfs.epilog", None)
    assert not slurm.point.exists()


@pytest.mark.parametrize("comment", [None, "", "another comment", "fzmfs", "not fzmfs at all"])
def test_other_jobs_get_no_mount(comment: str | None, slurm: Slurm) -> None:
    slurm.run("fzmfs.prolog", comment)
    assert not slurm.point.exists()
    slurm.run("fzmfs.epilog", comment)


@pytest.mark.parametrize("comment", ["fzmfs cache=16M /none", "fzmfs nonsense=1 /none", "fzmfs cache=16M --help"])
def test_what_cannot_be_mounted_is_logged_and_the_node_stays_in_service(comment: str, slurm: Slurm) -> None:
    slurm.run("fzmfs.prolog", comment)
    assert not slurm.point.exists()
    assert (slurm.folder / "log").read_text().startswith("job 17: fzmfs: ")
    slurm.run("fzmfs.epilog", None)


def test_the_pod_with_a_server_beside_a_program_has_no_rights(tmp_path: Path) -> None:
    pod = yaml.safe_load((EXAMPLES / "fzmfs-sidecar.yaml").read_text())
    assert pod["kind"] == "Pod" and pod["spec"]["securityContext"]["runAsNonRoot"]
    for container in pod["spec"]["containers"]:
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    server, work = pod["spec"]["containers"]
    # The program knows its options, and there the other one connects.
    *command, source = server["command"]
    assert command[0] == "fzmfs" and source in [mount["mountPath"] for mount in server["volumeMounts"]]
    said = subprocess.run([program(), *command[1:], tmp_path / "none"], capture_output=True, text=True, timeout=PATIENCE)
    assert said.returncode == 1 and "none" in said.stderr, said.stderr
    (listen,) = (option.removeprefix("--listen=") for option in command if option.startswith("--listen="))
    assert work["args"][0].startswith(f"http://{listen}/")


def test_the_daemon_set_starts_the_program_as_it_is(tmp_path: Path) -> None:
    daemon_set = yaml.safe_load((EXAMPLES / "fzmfs-daemonset.yaml").read_text())
    assert daemon_set["kind"] == "DaemonSet"
    template = daemon_set["spec"]["template"]
    assert daemon_set["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    (container,) = template["spec"]["containers"]
    # The command is a shell that runs what follows, whose options the program knows.
    shell, flag, line, _ = container["command"]
    subprocess.run([shell, "-n", flag, line], check=True)
    fzmfs, *arguments = container["args"]
    assert fzmfs == "fzmfs"
    said = subprocess.run([program(), *arguments[:-2], "/none", tmp_path], capture_output=True, text=True, timeout=PATIENCE)
    assert said.returncode == 1 and "/none" in said.stderr, said.stderr
    point = arguments[-1]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["fzmfs", "umount", point]
    assert container["readinessProbe"]["exec"]["command"] == ["test", "-e", f"{point}/info.json"]
    assert point in line
    # What it mounts is below a directory of the node, and is seen there.
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in template["spec"]["volumes"]}
    assert {name: mount["mountPath"] for name, mount in mounts.items()} == paths
    assert mounts["mounts"]["mountPropagation"] == "Bidirectional" and container["securityContext"]["privileged"]
    assert str(Path(point).parent) == paths["mounts"]

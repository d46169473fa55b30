"""What a lab node needs of this machine; Debian packages are installed if need be."""

import os
import platform
import shutil
import subprocess
from pathlib import Path

BUSYBOX = Path("/bin/busybox")
_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_APT_TIMEOUT_S = 600


def cni_folder() -> Path | None:
    """Return where the CNI plugins are."""
    return next((folder for folder in _CNI_FOLDERS if (folder / "ptp").exists()), None)


def missing_packages() -> list[str]:
    """Return the Debian packages whose programs are not here."""
    missing = []
    if shutil.which("containerd") is None or shutil.which("ctr") is None:
        missing.append("containerd")
    if shutil.which("runc") is None:
        missing.append("runc")
    if cni_folder() is None:
        missing.append("containernetworking-plugins")
    if not BUSYBOX.exists() or b"/ld-linux" in BUSYBOX.read_bytes():  # a dynamic one needs a libc
        missing.append("busybox-static")
    return missing


def reason_against_nodes() -> str | None:
    """Return why no lab node can run here, or None when all is there; installs what is missing."""
    if reason := _reason_against_machine():
        return reason
    missing = missing_packages()
    if missing and (reason := _install(missing)):
        return reason
    missing = missing_packages()
    return f"after installing, {', '.join(missing)} still lack their programs" if missing else None


def _reason_against_machine() -> str | None:
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "a lab node needs Linux on x86_64"
    if os.geteuid() != 0:
        return "a lab node needs root, for containerd and mounts"
    if shutil.which("unshare") is None or shutil.which("setpriv") is None:
        return "a lab node needs unshare and setpriv of util-linux"
    namespaces = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    if subprocess.run(namespaces, check=False, capture_output=True, timeout=10).returncode:  # noqa: S603
        return "a lab node needs mount and PID namespaces, which this machine does not allow"
    if os.statvfs("/sys/fs/cgroup").f_flag & os.ST_RDONLY and not _has_writable_cgroups():
        return "a lab node needs control groups that it may write"
    return None


def _has_writable_cgroups() -> bool:
    """Say whether a version 1 hierarchy below a read-only parent can be written."""
    memory = Path("/sys/fs/cgroup/memory")
    return memory.exists() and not os.statvfs(memory).f_flag & os.ST_RDONLY


def _install(packages: list[str]) -> str | None:
    if shutil.which("apt-get") is None:
        return f"a lab node needs {', '.join(packages)}, and there is no apt-get to install them"
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (
        ["update", "-q"],
        ["install", "-q", "-y", "--no-install-recommends", *packages],
    ):
        try:
            done = subprocess.run(  # noqa: S603
                ["apt-get", *arguments],  # noqa: S607
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=_APT_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"apt-get {arguments[0]} took longer than {_APT_TIMEOUT_S} s"
        if done.returncode != 0 and arguments[0] == "install":
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            return f"apt-get could not install {', '.join(packages)}: {last}"
    return None

"""Builds the node's container images from Debian's static busybox and programs of ours."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

from tests.cluster.packages import BUSYBOX

PAUSE = "slicedesk.test/pause:1"
GPU_TOOLS = "slicedesk.test/gpu-tools:1"
DEVICE_PLUGIN = "slicedesk.test/device-plugin:1"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FOLDERS = ("bin", "tmp", "dev", "proc", "sys", "etc", "host")


def write_image(
    target: Path, name: str, *, programs: Sequence[Path] = (), command: Sequence[str] = ("sh",)
) -> Path:
    """Write a docker-archive with busybox and the programs in /bin; return its path."""
    layer = _layer(programs)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": list(command), "Env": [f"PATH={_PATH}"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [{"Config": config_name, "RepoTags": [name], "Layers": ["layer.tar"]}]
    with tarfile.open(target, "w") as archive:
        _add_bytes(archive, config_name, config)
        _add_bytes(archive, "layer.tar", layer)
        _add_bytes(archive, "manifest.json", json.dumps(manifest).encode())
    return target


def _layer(programs: Sequence[Path]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder in _FOLDERS:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        _add_bytes(archive, "bin/busybox", BUSYBOX.read_bytes(), mode=0o755)
        for applet in _applets():
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            archive.addfile(link)
        for program in programs:
            _add_bytes(archive, f"bin/{program.name}", program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def _applets() -> list[str]:
    done = subprocess.run(  # noqa: S603
        [BUSYBOX, "--list"], capture_output=True, text=True, check=True, timeout=10
    )
    return [applet for applet in done.stdout.split() if applet != "busybox"]


def _add_bytes(archive: tarfile.TarFile, name: str, content: bytes, *, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))

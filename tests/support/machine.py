"""An isolated machine made of Linux namespaces, with its own users, processes, network and folders.

Root is needed. The machine has this system's programs and a copy of ``/etc``; the folders for the data of services are
empty. All changes are lost at the end. Tests run commands in it exactly as documents print them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EMPTY = ("/home", "/opt", "/srv", "/var/lib", "/var/log", "/run", "/mnt")
"""Folders for the data of services and users; empty at the start."""
SEEN = tuple(dict.fromkeys((str(ROOT), sys.prefix, sys.base_prefix)))
"""Folders that every user of the machine must be able to read: the project and the interpreter."""
SUDO = """#!/bin/sh
if [ "$1" = -u ]; then user=$2; shift 2; exec runuser -u "$user" -- "$@"; fi
exec "$@"
"""
SYSTEMCTL = """#!/bin/sh
# No systemd runs here: what it would start is started by the test, from the unit files.
case "$*" in
    "reload nginx") if [ -s /run/nginx.pid ]; then nginx -s reload; else nginx -e stderr; fi ;;
    "daemon-reload") ;;
    "enable --now "*)
        shift 2
        for unit; do test -f /etc/systemd/system/"$(echo "$unit" | sed 's/@.*\\./@./')" || exit 1; done ;;
    *) echo "systemctl $*: not here" >&2; exit 1 ;;
esac
"""
BEGIN = """
import fcntl, socket, struct, time
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x41))  # SIOCSIFFLAGS: up and running
print("ready", flush=True)
time.sleep(3600)
"""


def need(program: str, package: str) -> str:
    """The path of a program. If it is not installed, the test is skipped; in CI the test fails."""
    found = shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
    if found is None and os.environ.get("CI"):
        pytest.fail(f"{program} is missing in CI")
    if found is None:
        pytest.skip(f"{program} is not installed: apt-get install {package}")
    return found


class Machine:
    """The machine. It runs until :meth:`stop`, which ends all its processes.

    Args:
        folder: a scratch folder outside the machine.
    """

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("an empty machine needs root")
        mounts = folder / "mounts.sh"
        mounts.write_text(_mounts(folder), "utf-8")
        program = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m aggregator.entry"
        hearsay = f'#!/bin/sh\n{program} "$@"\n'
        for name, text in (("sudo", SUDO), ("systemctl", SYSTEMCTL), ("hearsay", hearsay)):
            (folder / name).write_text(text, "utf-8")
            (folder / name).chmod(0o755)
        command = ["unshare", "--mount", "--net", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc"]
        begin = ["sh", "-c", f'sh {shlex.quote(str(mounts))} && exec "$0" -c "$1"', sys.executable, BEGIN]
        self._holder = subprocess.Popen([*command, *begin], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self._holder.stdout.readline() != "ready\n":
            error = self._holder.communicate()[1]
            if "unshare failed" in error:
                pytest.skip("this system allows no namespaces")
            raise AssertionError(error)
        (child,) = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self._enter = ["nsenter", "--target", child, "--mount", "--net", "--pid", "--uts"]

    def stop(self) -> None:
        """End everything in it."""
        self._holder.kill()
        self._holder.communicate()

    def run(self, *command: object, user: str = "root", folder: str = "/", status: int = 0, **environment: str) -> str:
        """Run one command to its end, check its exit status, and return its output."""
        done = self.start(*command, user=user, folder=folder, **environment)
        out, err = done.communicate(timeout=60)
        assert done.returncode == status, f"{command}: {done.returncode}\n{out}{err}"
        return out + err

    def start(self, *command: object, user: str = "root", folder: str = "/", **environment: str) -> subprocess.Popen:
        """Start one command as a user, in a folder, with little in its environment."""
        path = "/run/shims:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        variables = {"PATH": path, "LANG": "C.UTF-8", "USER": user, **environment}
        words = ["env", "-i", f"--chdir={folder}", *(f"{name}={value}" for name, value in variables.items())]
        if user != "root":  # no login; the groups come from the machine's files
            words = ["runuser", "-u", user, "--", *words]
        return subprocess.Popen(
            [*self._enter, *words, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def shell(self, text: str, *, user: str, folder: str) -> str:
        """Run lines of a document one after another, as a user types them. The first failing line ends the run."""
        return self.run("sh", "-euc", text, user=user, folder=folder)

    def write(self, path: str, text: str, *, user: str = "root", mode: str = "644") -> None:
        """Write a text file in the machine."""
        self.run("sh", "-euc", 'printf %s "$1" | install -m "$2" /dev/stdin "$3"', "sh", text, mode, path, user=user)

    def put(self, outside: Path, inside: str) -> None:
        """Copy a file or folder into the machine, readable by everyone."""
        self.run("sh", "-euc", 'cp -r "$1" "$2" && chmod -R a+rX "$2"', "sh", outside, inside)


def _mounts(folder: Path) -> str:
    """The script that makes the machine's folders, within its namespace."""
    kept = folder / "kept"
    lines = ["set -eu", f"cd {shlex.quote(str(folder))}", "cp -a /etc etc", "mkdir -p kept shims upper"]
    lines += ["cp sudo systemctl hearsay shims/", "printf '127.0.0.1 localhost reports.example.org\\n' > etc/hosts"]
    for number, path in enumerate(SEEN):
        lines += [f"mkdir {kept}/{number}", f"mount --rbind {shlex.quote(path)} {kept}/{number}"]
    lines += [f"mount -t tmpfs -o mode=755 tmpfs {path}" for path in EMPTY]
    for ancestor in sorted({found for path in SEEN if (found := _closed_above(path)) is not None}):
        lines.append(f"mount -t tmpfs -o mode=755 tmpfs {shlex.quote(ancestor)}")
    for number, path in enumerate(SEEN):
        if _closed_above(path) is not None or path.startswith(tuple(f"{empty}/" for empty in EMPTY)):
            quoted = shlex.quote(path)
            lines += [f"mkdir -p {quoted}", f"mount --rbind {kept}/{number} {quoted}"]
    lines += ["mkdir -p /var/log/nginx /run/shims /var/lib/nginx", "cp shims/* /run/shims/"]
    lines += ["mount --bind etc /etc", "rm -f /etc/.pwd.lock"]
    return "\n".join(lines) + "\n"


def _closed_above(path: str) -> str | None:
    """The topmost parent folder that only its owner can enter; None if there is none."""
    above = [str(parent) for parent in reversed(Path(path).parents)]
    return next((each for each in above if not Path(each).stat().st_mode & 0o001), None)

"""The roster of a closed fleet: the name and the secret of every device. The operator keeps it under a passphrase.

    OUT/fleet.hsf            the fleet list: all names and secrets, encrypted unless the operator asked for plain text
    OUT/devices/NAME.hsp     one provisioning file per device, to be copied to the device and then deleted here

The secrets link every report to its device. ε-LDP does not rely on unlinkability, but the secrets are protected all
the same. Source: docs/formats.md, section 8.
"""

from __future__ import annotations

import os
import secrets as tokens
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from aggregator.common.files import read_file, storage_errors, sync_folder
from aggregator.common.sealing import STANDARD, Cost, check_sealed, open_secret, seal_secret
from protocol import canonical
from protocol.document import is_text
from protocol.documents.provisioning import SECRET_BYTES, Provisioning, build_provisioning
from protocol.errors import DocumentError, InputError, StorageError

FORMAT = 1
LIST_FILE, DEVICES = "fleet.hsf", "devices"
MAX_LIST_BYTES = 1 << 30
_MAX_FILE_NAME = 200
_KEYS = {"hearsay_fleet", "fleet", "devices", "secrets"}


class Roster(NamedTuple):
    """A closed fleet. Its ``repr`` shows no secret.

    Attributes:
        fleet: name of the fleet.
        devices: names of the devices, all different.
        secrets: 32 bytes for each device, in the same order.
    """

    fleet: str
    devices: tuple[str, ...]
    secrets: bytes

    def __repr__(self) -> str:
        return f"Roster({self.fleet!r}, {len(self.devices)} devices)"

    def each_secret(self) -> Iterator[bytes]:
        """The secrets, one by one."""
        return (self.secrets[at : at + SECRET_BYTES] for at in range(0, len(self.secrets), SECRET_BYTES))

    def provisionings(self) -> Iterator[Provisioning]:
        """The content of the provisioning file of each device."""
        for name, secret in zip(self.devices, self.each_secret(), strict=True):
            yield Provisioning(self.fleet, name, secret)

    def without(self, names: Iterable[str]) -> Roster:
        """The fleet without some of its devices.

        Raises:
            InputError: ``device_unknown``: a name is not in the list; ``fleet_empty``: no device is left.
        """
        gone = self._known(names)
        rest = [given for given in self.provisionings() if given.device not in gone]
        if not rest:
            raise InputError("fleet_empty", "no device is left in the list")
        return Roster(self.fleet, tuple(given.device for given in rest), b"".join(given.secret for given in rest))

    def renewed(self, names: Iterable[str], *, entropy: Callable[[int], bytes] = os.urandom) -> Roster:
        """The fleet with new secrets for some of its devices. Reports under their old secrets no longer count.

        Args:
            names: the devices.
            entropy: ``entropy(n)`` returns n random bytes.

        Raises:
            InputError: ``device_unknown``: a name is not in the list.
        """
        lost = self._known(names)
        secrets = [entropy(SECRET_BYTES) if given.device in lost else given.secret for given in self.provisionings()]
        return self._replace(secrets=b"".join(secrets))

    def _known(self, names: Iterable[str]) -> frozenset[str]:
        wanted = frozenset(names)
        for name in sorted(wanted - set(self.devices)):
            raise InputError("device_unknown", f"the fleet '{self.fleet}' has no device '{name}'")
        return wanted


def new_roster(fleet: str, names: Iterable[str], *, entropy: Callable[[int], bytes] = os.urandom) -> Roster:
    """Draw a secret for every device. Run by the operator, once.

    Args:
        fleet: name of the fleet. Devices show it; reports do not hold it.
        names: names of the devices.
        entropy: ``entropy(n)`` returns n random bytes.

    Raises:
        InputError: ``name_invalid``, the fleet's name or a device's is empty, too long or can not be printed;
            ``device_repeated``, a name occurs twice, or two names differ only by the case of letters, which some file
            systems do not distinguish; ``fleet_empty``, there is no name.
    """
    names = tuple(names)
    if not is_text(fleet):
        raise InputError("name_invalid", "the fleet's name is empty, too long, or does not print")
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not is_text(name) or len(_file_name(name)) > _MAX_FILE_NAME:
            raise InputError("name_invalid", f"the name of device {number} is empty, too long, or does not print")
        if _file_name(name).casefold() in seen:
            problem = f"'{name}', device {number}, is in the list already; capitals and small letters are the same here"
            raise InputError("device_repeated", problem)
        seen.add(_file_name(name).casefold())
    if not names:
        raise InputError("fleet_empty", "no device is named")
    return Roster(fleet, names, b"".join(entropy(SECRET_BYTES) for _ in names))


def distinct_secrets(rosters: Iterable[Roster]) -> bytes:
    """The secrets of all devices in ``rosters``, 32 bytes each, sorted, one after another.

    A secret in several lists occurs once.
    """
    return b"".join(sorted({secret for roster in rosters for secret in roster.each_secret()}))


def _file_name(device: str) -> str:
    """The file name of a device. Its name can neither leave the folder nor make a hidden file."""
    quoted = quote(device, safe=" ")
    return f"%2E{quoted[1:]}.hsp" if quoted.startswith(".") else f"{quoted}.hsp"


def write_roster(
    out: str | Path,
    roster: Roster,
    passphrase: bytes | None,
    *,
    devices: Collection[str] | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
    cost: Cost = STANDARD,
) -> None:
    """Write the list, and provisioning files for devices: all or none, readable only by their owner.

    Args:
        out: a folder that does not exist, or is empty.
        roster: the fleet.
        passphrase: encrypts the list; None writes the list as plain text.
        devices: names of the devices that get a provisioning file; None for all.
        entropy: ``entropy(n)`` returns n random bytes, for the encryption.
        cost: time and memory that one attempt at the passphrase takes.

    Raises:
        InputError: ``output_exists``: a file, a link or a folder with content is there; ``output_invalid``: the
            parent is no folder, or the path has a zero byte; ``passphrase_missing``: the passphrase is empty.
        StorageError: ``memory_short``: too little memory for the passphrase; ``disk_full``, ``io_failed``. Nothing is
            left behind, unless only the last flush failed: then all files are there, but a power cut may remove them.
    """
    out = Path(out)
    if "\0" in str(out):
        raise InputError("output_invalid", "the path of a folder can not have a zero byte; choose another name")
    if os.path.lexists(out) and not (out.is_dir() and not out.is_symlink() and not any(out.iterdir())):
        raise InputError("output_exists", f"'{out}' exists and is not an empty folder")
    if not out.absolute().parent.is_dir():
        raise InputError("output_invalid", f"'{out}' is in a folder that does not exist")
    sealed = list_bytes(roster, passphrase, entropy=entropy, cost=cost)
    hidden = out.parent / f".{out.name[:40]}.{tokens.token_hex(4)}.tmp"
    try:
        with storage_errors(f"'{out}' could not be made"):
            hidden.mkdir(mode=0o700)
            (hidden / DEVICES).mkdir(mode=0o700)
            for given in roster.provisionings():
                if devices is not None and given.device not in devices:
                    continue
                _write_private(hidden / DEVICES / _file_name(given.device), build_provisioning(given))
            _write_private(hidden / LIST_FILE, sealed)
            os.sync()  # one flush of all files is faster than a flush of each
            hidden.rename(out)
            sync_folder(out.absolute().parent)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def list_bytes(
    roster: Roster,
    passphrase: bytes | None,
    *,
    entropy: Callable[[int], bytes] = os.urandom,
    cost: Cost = STANDARD,
) -> bytes:
    """The content of a fleet list's file. The arguments are those of :func:`write_roster`.

    Raises:
        InputError: ``passphrase_missing``: the passphrase is empty.
        StorageError: ``memory_short``: too little memory for the passphrase.
    """
    body = {"hearsay_fleet": FORMAT, "fleet": roster.fleet, "devices": roster.devices, "secrets": roster.secrets}
    listed = canonical.pack(body)
    return listed if passphrase is None else seal_secret(listed, passphrase, entropy=entropy, cost=cost)


def read_roster(path: str | Path, passphrase: bytes | Callable[[], bytes]) -> Roster:
    """Read a fleet list. The arguments and errors are those of :func:`open_roster`."""
    return open_roster(path, passphrase)[0]


def open_roster(path: str | Path, passphrase: bytes | Callable[[], bytes]) -> tuple[Roster, bytes | None]:
    """Read a fleet list, and tell under which passphrase it was.

    Args:
        path: file of the list.
        passphrase: the list's passphrase, or a function that returns it. The function is called only for an encrypted
            list. A plain list needs no passphrase.

    Returns:
        The list, and its passphrase; None for a plain list.

    Raises:
        InputError: ``file_not_found``, ``unreadable``, ``too_large``; ``passphrase_wrong``; ``passphrase_missing``:
            the passphrase is empty.
        StorageError: ``sealed_damaged``: the file is neither a plain nor an encrypted list; ``sealed_newer``;
            ``memory_short``: too little memory for the passphrase; ``fleet_damaged``: it was decrypted and holds no
            fleet list.
    """
    raw = read_file(path, MAX_LIST_BYTES)
    roster = _parse(raw)
    if roster is not None:
        return roster, None
    check_sealed(raw)  # A damaged file is refused before the user is asked for a passphrase.
    used = passphrase if isinstance(passphrase, bytes) else passphrase()
    roster = _parse(open_secret(raw, used))
    if roster is None:
        raise StorageError("fleet_damaged", f"'{path}' opens and holds no fleet list that this software knows")
    return roster, used


def _parse(content: bytes) -> Roster | None:
    body: Any = None
    try:
        body = canonical.unpack(content)
    except DocumentError:
        return None
    if not isinstance(body, dict) or body.get("hearsay_fleet") != FORMAT or body.keys() != _KEYS:
        return None
    fleet, names, secrets = body["fleet"], body["devices"], body["secrets"]
    if not is_text(fleet) or not isinstance(names, list) or not all(map(is_text, names)):
        return None
    if not isinstance(secrets, bytes) or len(secrets) != SECRET_BYTES * len(names) or len(set(names)) != len(names):
        return None
    return Roster(fleet, tuple(names), secrets)

"""The loop in a thread beside an application.

hearsay-edge --state state provision root.hst
python examples/loop/in_thread.py --state state --source http://127.0.0.1:8080 --campaign pumps
"""

from __future__ import annotations

import signal
import sys
import threading
from typing import TYPE_CHECKING

from loop import LOG, Loop, from_command_line

from edge_sdk import HearsayError

if TYPE_CHECKING:
    from typing import Self


class Background:
    """Runs the steps of a loop in a thread, from the beginning of a `with` block to its end.

    The end of the block waits for the present step, and a sync over the web may take minutes. An application that can
    not wait may exit: the thread is a daemon, and a step may be killed at any point.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hearsay", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._loop.step()):
            pass


def main() -> None:
    """Start the loop, do the work of the application (here: wait for a signal), and end the loop."""
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    loop = from_command_line(__doc__ or "")
    with loop.device, Background(loop):
        over.wait()  # the application's own work
        LOG.info("ending")


if __name__ == "__main__":
    try:
        main()
    except HearsayError as refusal:
        sys.exit(str(refusal))

"""The loop as a task of asyncio.

hearsay-edge --state state provision root.hst
python examples/loop/in_asyncio.py --state state --source http://127.0.0.1:8080 --campaign pumps
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from loop import LOG, Loop, from_command_line

from edge_sdk import HearsayError


async def run(loop: Loop, stop: asyncio.Event) -> None:
    """Run steps until `stop` is set. A step waits for disk and network, so it runs in a thread, beside other tasks.

    If this task is cancelled, a step that has begun still runs to its end. It may be killed with the process.
    """
    while not stop.is_set():
        pause = await asyncio.to_thread(loop.step)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause)


async def main(loop: Loop) -> None:
    """Start the loop, do the work of the application (here: wait for a signal), and end the loop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run(loop, stop))
        await stop.wait()  # the application's own work
        LOG.info("ending")


if __name__ == "__main__":
    try:
        made = from_command_line(__doc__ or "")
        with made.device:
            asyncio.run(main(made))
    except HearsayError as refusal:
        sys.exit(str(refusal))

"""Probe of Sentry's client: its default transport can not reach a server, so events stay in a queue in memory."""

from __future__ import annotations

import os
import sys

import measure

bare = measure.resident()
import sentry_sdk

imported = measure.resident()
sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", shutdown_timeout=0)
sentry_sdk.capture_message("report")
used = measure.resident()
with measure.Thousand() as block:
    for _ in range(measure.COUNT):
        sentry_sdk.capture_message("report")
transport = sentry_sdk.get_client().transport
waiting = transport._worker._queue.qsize() if transport is not None else 0  # noqa: SLF001
measure.tell(bare, imported, used, block, waiting)
sys.stdout.flush()
os._exit(0)  # without waiting for the unreachable server

"""Probe of OpenTelemetry's batch processor: spans in a queue in memory, before the exporter is called."""

from __future__ import annotations

import os
import sys

import measure

bare = measure.resident()
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

imported = measure.resident()


class Unreachable(SpanExporter):
    """An exporter that counts spans and keeps none."""

    seen = 0

    def export(self, spans):  # noqa: ANN001, ANN201
        """Count the spans and report a failure."""
        Unreachable.seen += len(spans)
        return SpanExportResult.FAILURE


provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(Unreachable(), schedule_delay_millis=3_600_000))
tracer = provider.get_tracer("probe")
with tracer.start_as_current_span("report"):
    pass
used = measure.resident()
with measure.Thousand() as block:
    for _ in range(measure.COUNT):
        with tracer.start_as_current_span("report"):
            pass
waiting = measure.COUNT + 1 - Unreachable.seen
measure.tell(bare, imported, used, block, waiting)
sys.stdout.flush()
os._exit(0)

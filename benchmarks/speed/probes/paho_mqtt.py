"""Probe of an MQTT client without a connection: QoS 1 messages of a report's size go to its queue in memory."""

from __future__ import annotations

import measure

bare = measure.resident()
from paho.mqtt import client as mqtt

imported = measure.resident()
client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id="probe", clean_session=False)
client.max_queued_messages_set(0)  # no limit
handed = [client.publish("reports", bytes(18), qos=1)]
used = measure.resident()
with measure.Thousand() as block:
    handed += [client.publish("reports", bytes(18), qos=1) for _ in range(measure.COUNT)]
waiting = sum(each.rc != mqtt.MQTT_ERR_QUEUE_SIZE for each in handed) - 1
measure.tell(bare, imported, used, block, waiting)

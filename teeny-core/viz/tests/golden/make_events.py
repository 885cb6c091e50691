"""An event file of TensorBoard: writes events.tfevents beside this script: python3 make_events.py (needs tensorboard and numpy).

Made with tensorboard 2.21.0, protobuf 7.36.2, numpy 2.4.6 and python 3.11.7.
"""

import io
import pathlib

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary
from tensorboard.summary.writer.record_writer import RecordWriter

values = np.array([i * i / 16 - 20 for i in range(50)])
low, high = values.min(), values.max()
# the right-hand edges, and counts of bins that contain their left-hand edge
limits = [low + (high - low) * (i + 1) / 30 for i in range(30)]
places = np.minimum(((values - low) / (high - low) * 30).astype(int), 29)
histogram = HistogramProto(
    min=low, max=high, num=50, sum=values.sum(), sum_squares=(values * values).sum(),
    bucket_limit=limits, bucket=np.bincount(places, minlength=30).astype(float))


def summary(tag, **value):
    return Summary(value=[Summary.Value(tag=tag, **value)])


events = [
    Event(wall_time=1.5, file_version="brain.Event:2"),
    Event(wall_time=2.5, summary=summary("loss/train", simple_value=0.625)),
    Event(wall_time=3.5, step=300, summary=summary("zero", simple_value=0.0)),
    Event(wall_time=4.5, step=1 << 40, summary=summary("nan", simple_value=float("nan"))),
    Event(wall_time=5.5, step=7, summary=summary("größe", histo=histogram)),
]
file = io.BytesIO()
writer = RecordWriter(file)
for event in events:
    writer.write(event.SerializeToString())
pathlib.Path(__file__).with_name("events.tfevents").write_bytes(file.getvalue())

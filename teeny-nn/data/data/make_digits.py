"""Packs the optical digits into two IDX files: python3 make_digits.py path/to/sklearn/datasets/data/digits.csv.gz

The source is the file scikit-learn ships (1,797 rows: 64 pixels of 0..=16, row by row, then the label). Pixels stay as they are;
teeny-nn's `data::digits` brings them to MNIST's form. The gzip header carries no time, so the same input gives the same bytes.
"""

import gzip
import hashlib
import pathlib
import struct
import sys

rows = [[int(float(v)) for v in line.split(",")] for line in gzip.open(sys.argv[1], "rt")]
assert len(rows) == 1797 and all(len(r) == 65 and max(r[:64]) <= 16 for r in rows)
images = struct.pack(">4B3I", 0, 0, 8, 3, len(rows), 8, 8) + bytes(v for r in rows for v in r[:64])
labels = struct.pack(">4B1I", 0, 0, 8, 1, len(rows)) + bytes(r[64] for r in rows)
for name, content in (("digits-images-idx3-ubyte.gz", images), ("digits-labels-idx1-ubyte.gz", labels)):
    path = pathlib.Path(__file__).with_name(name)
    path.write_bytes(gzip.compress(content, 9, mtime=0))
    print(name, path.stat().st_size, "bytes; content sha256", hashlib.sha256(content).hexdigest())

"""Writes the golden files beside this script: python3 make_golden.py (needs torch, CPU only, and numpy).

Each file begins with the versions that made it. Nothing here is random but views.json, whose generator is Python's own, seeded.
What one element looks like is in encode.py, beside the golden files of teeny-core's own tests; indexing.py writes there too.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden"))

import dtypes
import elementwise
import indexing
import products
import reductions
import views

for part in (dtypes, views, elementwise, reductions, products, indexing):
    part.main()

"""Runs bench.html for each library and engine and prints a table: compare.py SITE WORK ROUNDS.

Each round starts a browser for each of them, one after another; the table has the least of all
rounds. The digits are those that the library has built in, enlarged as it does.
"""
import gzip
import os
import pathlib
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'drive'))
from browser import Browser  # noqa: E402

SITE, WORK, ROUNDS = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
HERE = pathlib.Path(__file__).parent
DATA = HERE.parent.parent.parent / 'teeny-nn' / 'data'
MODULES = WORK / 'node_modules' / '@tensorflow'
EPOCHS = {'cpu': 12, 'wasm': 40, 'webgpu': 10}
ROWS = [('tfjs', 'cpu'), ('tfjs', 'wasm'), ('teeny', 'wasm'), ('tfjs', 'webgpu'),
        ('teeny', 'webgpu')]
TFJS = {
    'cpu': ['tf.min.js'],
    'wasm': ['tf.min.js', 'tf-backend-wasm.min.js', 'tfjs-backend-wasm-simd.wasm'],
    'webgpu': ['tf.min.js', 'tf-backend-webgpu.min.js'],
}


def enlarged(image):
    """An image of 8 x 8 with ink up to 16 as 28 x 28 bytes, as teeny_nn::data::digits does."""
    between = []
    for i in range(20):
        at = min(max((i + 0.5) * 8 / 20 - 0.5, 0), 7)
        between.append((int(at), min(int(at) + 1, 7), at - int(at)))
    large = bytearray(28 * 28)
    for row, (top, bottom, v) in enumerate(between):
        for column, (left, right, u) in enumerate(between):
            upper = image[8 * top + left] * (1 - u) + image[8 * top + right] * u
            lower = image[8 * bottom + left] * (1 - u) + image[8 * bottom + right] * u
            value = upper * (1 - v) + lower * v
            large[(row + 4) * 28 + column + 4] = round(value * 255 / 16)
    return bytes(large)


def digits():
    """The images, then the labels."""
    images = gzip.decompress((DATA / 'digits-images-idx3-ubyte.gz').read_bytes())
    labels = gzip.decompress((DATA / 'digits-labels-idx1-ubyte.gz').read_bytes())
    count = struct.unpack('>i', images[4:8])[0]
    images, labels = images[16:], labels[8:]
    return b''.join(enlarged(images[64 * i:64 * i + 64]) for i in range(count)) + labels


def prepare():
    site = WORK / 'site'
    shutil.rmtree(site, ignore_errors=True)
    (site / 'tfjs').mkdir(parents=True)
    shutil.copytree(SITE / 'pkg', site / 'pkg')
    for name in ('bench.html', 'bench.js'):
        shutil.copy(HERE / name, site)
    for package in ('tfjs', 'tfjs-backend-wasm', 'tfjs-backend-webgpu'):
        for path in (MODULES / package).rglob('*'):
            if path.name.endswith('.wasm') or path.name.startswith('tf') and \
                    path.name.endswith('.min.js') and '.es2017' not in path.name:
                shutil.copy(path, site / 'tfjs')
    (site / 'digits.bin').write_bytes(digits())
    return site


def gzipped(paths):
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in paths)


def least(old, new):
    """The better figures of two rounds."""
    if old is None:
        return new
    both = {key: min(old[key], new[key]) for key in ('ready', 'first', 'least', 'median')}
    goals = [goal for goal in (old['toGoal'], new['toGoal']) if goal]
    goal = min(goals, key=lambda goal: goal['seconds'], default=None)
    return {**new, **both, 'toGoal': goal}


def main():
    site = prepare()
    results = {}
    for round_number in range(ROUNDS):
        for library, engine in ROWS:
            with Browser(str(site)) as browser:
                browser.open(f'/bench.html?library={library}&engine={engine}'
                             f'&epochs={EPOCHS[engine]}')
                result = browser.until('window.result', seconds=900)
            if 'error' in result:
                sys.exit(f'{library} {engine}: {result["error"]}\n{browser.problems}')
            print(f'round {round_number + 1}: {library} {engine}: {result}, load '
                  f'{os.getloadavg()[0]:.1f}', file=sys.stderr, flush=True)
            results[library, engine] = least(results.get((library, engine)), result)
    print('| library, engine | ms per step, least | median | first step, ms | to 90 %, s (epochs) '
          '| launches per step | download, kB gzipped |')
    print('|---|---|---|---|---|---|---|')
    for (library, engine), r in results.items():
        paths = [site / 'tfjs' / name for name in TFJS[engine]] if library == 'tfjs' else \
            list((site / 'pkg').iterdir())
        goal = f"{r['toGoal']['seconds']:.2f} ({r['toGoal']['epoch']})" if r['toGoal'] else '-'
        launches = f"{r['launches']:.0f}" if engine == 'webgpu' else ''
        print(f"| {library}, {engine} | {r['least']:.3f} | {r['median']:.3f} | {r['first']:.1f} "
              f"| {goal} | {launches} | {gzipped(paths) / 1000:.0f} |")


main()

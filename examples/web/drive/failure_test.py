"""Checks of failures: files that are damaged, runs that diverge, workers that are silent, libraries
that do not load, builds that fail."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile
import time
import zlib

from browser import Browser
from visit import (GOAL, SITE, alerted, choose, is_alerted, opened, paused, quiet, ready,
                   replace_by, require, reset, saved_file, shot, text_of, trained, value)

CHECKSUM = b'"page/checksum":"'


def repacked(file, change):
    """A checkpoint file with other tensors, and the checksum of those."""
    data = bytearray(file)
    start = data.index(CHECKSUM) + len(CHECKSUM)
    change(data, 8 + struct.unpack('<Q', data[:8])[0])
    data[start:start + 8] = b'00000000'
    data[start:start + 8] = b'%08x' % zlib.crc32(data)
    return bytes(data)


def with_nan(data, tensors):
    data[tensors:tensors + 4] = struct.pack('<f', math.nan)


def test_a_file_with_a_flipped_bit_or_nan_weights_is_refused_and_the_training_goes_on():
    with Browser(SITE) as browser:
        browser.call('Browser.setDownloadBehavior', behavior='allow', downloadPath=browser.folder)
        opened(browser)
        browser.click('#run')
        browser.until('window.teenyPage.checkpoint?.epoch')
        saved = saved_file(browser)
        good = saved.read_bytes()
        require(repacked(good, lambda *_: None) == good, 'the checksum is not the CRC-32')
        header = json.loads(good[8:8 + struct.unpack('<Q', good[:8])[0]])
        require(header['__metadata__']['page/arch'] == 'mlp', 'the header is not safetensors')

        def flipped(place):
            return good[:place] + bytes([good[place] ^ 0x20]) + good[place + 1:]
        digits = good.index(CHECKSUM) + len(CHECKSUM)
        # a letter, which stays a digit of the same value
        letter = next((i for i in range(digits, digits + 8) if good[i] > 96), digits)
        damaged = pathlib.Path(browser.folder) / 'damaged.safetensors'
        for what, data, words in [
                ('a weight', flipped(len(good) - 2), 'damaged'),
                ('the header', flipped(good.index(b'position')), 'damaged'),
                ('the checksum', flipped(letter), 'damaged'),
                ('NaN', repacked(good, with_nan), 'not finite numbers')]:
            damaged.write_bytes(data)
            step = value(browser, 'step')
            replace_by(browser, damaged)
            text = alerted(browser, 'not loaded')
            print(f'    {what}: {text.splitlines()[2]}')
            require(words in text, text)
            browser.click('#alert-actions button')
            browser.until('window.teenyPage.step', lambda n: n > step)
            require(value(browser, 'isRunning'), 'the training has stopped')
        replace_by(browser, saved)
        browser.until('document.querySelector("#checkpoint-status").textContent',
                      lambda text: text.startswith('Loaded'))
        quiet(browser)


def test_a_run_that_diverges_goes_back_to_its_checkpoint():
    with Browser(SITE) as browser:
        opened(browser)
        trained(browser)
        # the first one is that of the first epoch
        browser.until('window.teenyPage.checkpoint?.accuracy', lambda a: (a or 0) > 0.5)
        epoch = value(browser, 'checkpoint.epoch')
        # the field refuses such a learning rate
        browser.evaluate("teenyPage.worker.postMessage({ kind: 'lr', lr: 1e9 })")
        text = alerted(browser, 'has stopped')
        require('far higher' in text or 'no longer a number' in text, text)
        print('   ', ' | '.join(line for line in text.splitlines() if line))
        step, share = value(browser, 'checkpoint.step'), value(browser, 'checkpoint.accuracy')
        require(f'Go back to step {step}, {100 * share:.1f} %' in text, text)
        require('help' not in text, text)
        require(text_of(browser, '#status') == 'Stopped', 'the status says something else')
        require(browser.evaluate('document.querySelector("#run").disabled'),
                'a run of NaN can be continued')
        browser.evaluate('scrollTo(0, 0)')
        shot(browser, 'diverged')
        browser.click('#alert-actions button')
        browser.until('document.querySelector("#run").disabled', lambda disabled: not disabled)
        require(value(browser, 'step') == step, 'the step is not that of the checkpoint')
        require(value(browser, 'accuracy') > 0.5, 'the accuracy is not that of the checkpoint')
        browser.click('#run')
        browser.until('window.teenyPage.epoch', lambda n: n > epoch)
        browser.until('window.teenyPage.accuracy', lambda a: (a or 0) >= GOAL)
        require(not is_alerted(browser), 'it diverged again')
        # without a checkpoint there is a new beginning
        paused(browser)
        reset(browser)
        browser.evaluate("teenyPage.worker.postMessage({ kind: 'lr', lr: 1e30 })")
        browser.click('#run')
        text = alerted(browser, 'Start over')
        require('no longer' in text and 'Go back' not in text, text)
        browser.click('#alert-actions button')
        browser.until('document.querySelector("#run").disabled', lambda disabled: not disabled)
        rate = browser.evaluate('document.querySelector("#lr").value')
        require(rate == '0.4', f'the learning rate is {rate}')
        trained(browser)
        quiet(browser)


def test_a_network_that_becomes_far_worse_does_not_replace_its_checkpoint():
    with Browser(SITE) as browser:
        opened(browser)
        trained(browser)
        browser.until('window.teenyPage.checkpoint?.accuracy', lambda a: (a or 0) > 0.8)
        choose(browser, '#lr', '1')
        epoch = browser.until('window.teenyPage.accuracy < 0.3 && window.teenyPage.epoch')
        # time for many checkpoints, and one at the pause
        browser.until('window.teenyPage.epoch', lambda n: n > epoch + 40)
        browser.click('#run')
        browser.until('document.querySelector("#status").textContent', lambda s: s == 'Paused')
        time.sleep(1)
        share = value(browser, 'checkpoint.accuracy')
        require(share > 0.8, f'the checkpoint reads {100 * share:.1f} %')
        step = value(browser, 'checkpoint.step')
        note = text_of(browser, '#checkpoint-note')
        require(note.startswith('Kept') and f'step {step},' in note, note)
        require('less than half as many' in note, note)
        text = alerted(browser, 'far worse')
        print('   ', ' | '.join(line for line in text.splitlines() if line))
        require(f'Go back to step {step}, {100 * share:.1f} %' in text, text)
        browser.evaluate('scrollTo(0, 0)')
        shot(browser, 'worse')
        # it is said once
        browser.click('#alert-actions button:last-child')
        browser.click('#run')
        browser.until('window.teenyPage.epoch', lambda n: n > epoch + 80)
        require(not is_alerted(browser), 'it is said again')
        # the next visit begins with the good one
        browser.open()
        text = alerted(browser, 'last visit')
        require(f'{100 * share:.1f} %' in text, text)
        ready(browser)
        browser.click('#alert-actions button')
        browser.until('window.teenyPage.step', lambda n: n == step)
        ready(browser)
        require(value(browser, 'accuracy') == share, 'the accuracy is not that of the checkpoint')
        # and so does the way back
        choose(browser, '#lr', '1')
        browser.click('#run')
        alerted(browser, 'far worse')
        browser.click('#alert-actions button')
        browser.until('document.querySelector("#status").textContent', lambda s: s == 'Paused')
        browser.until('window.teenyPage.accuracy', lambda a: (a or 0) > 0.8)
        rate = browser.evaluate('document.querySelector("#lr").value')
        require(rate == '0.4', f'the learning rate is {rate}')
        trained(browser)
        quiet(browser)


def block(browser, seconds):
    """Keeps the worker busy, as a long call of the library does."""
    js = f'{{ const end = Date.now() + {1000 * seconds}; while (Date.now() < end); }}'
    browser.send('Runtime.evaluate', browser.workers[-1], {'expression': js})


def observe(browser, name, selector, options, js):
    """Collects values of `js` in `window[name]` when an element changes."""
    browser.evaluate(f'''(() => {{
        const element = document.querySelector('{selector}');
        window.{name} = [];
        new MutationObserver(() => window.{name}.push({js})).observe(element, {options});
    }})()''')


def test_a_silent_worker_is_waited_for_and_named():
    with Browser(SITE) as browser:
        opened(browser)
        browser.evaluate('window.teenyPage.limits = { answer: 1500, first: 60000 }')
        observe(browser, 'alerts', '#alert', '{ attributes: true }',
                'element.hidden ? "" : element.innerText')
        observe(browser, 'statuses', '#status', '{ childList: true }', 'element.textContent')
        time.sleep(3)  # an idle page waits for nothing
        browser.click('#run')
        browser.until('window.teenyPage.epoch')
        require(not browser.evaluate('window.alerts.length'), 'a false alarm')
        # the message comes while a call takes long, and goes when it has ended
        step = value(browser, 'step')
        block(browser, 4)
        alerted(browser, 'no answer', 10)
        browser.until('document.querySelector("#alert").hidden')
        browser.until('window.teenyPage.step', lambda n: n > step + 20)
        said = [text for text in browser.evaluate('window.alerts') if text]
        require(any('no answer' in t and 'waits for the next step' in t for t in said), said)
        print('   ', ' | '.join(line for line in said[0].splitlines() if line))
        browser.until('document.querySelector("#status").textContent', lambda s: s == 'Training')
        # a first step has more time, and the page says what it waits for
        paused(browser)
        reset(browser)
        browser.evaluate('window.alerts = []; window.statuses = []')
        block(browser, 5)
        browser.click('#run')
        browser.until('window.teenyPage.epoch')
        require(not browser.evaluate('window.alerts.length'), 'the first step raised an alarm')
        statuses = browser.evaluate('window.statuses')
        require(any('Waiting for the first step' in text for text in statuses), statuses)
        # a way out ends the worker that hangs
        browser.evaluate('window.alerts = []')
        browser.until('window.teenyPage.checkpoint?.epoch')
        block(browser, 600)
        alerted(browser, 'Continue with the CPU from epoch', 30)
        shot(browser, 'silent')
        browser.click('#alert-actions button')
        ready(browser, 30)
        trained(browser)
        quiet(browser)


# the first name of each list is empty, as one in four of the first lists has it
EMPTY_NAME = '''
const sample = Session.prototype.sample_names;
Session.prototype.sample_names = async function (count) {
    return ['', ...(await sample.call(this, count)).slice(1)];
};
'''


def test_an_empty_name_is_not_listed():
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(SITE, folder, dirs_exist_ok=True)
        with open(f'{folder}/pkg/web.js', 'a') as file:
            file.write(EMPTY_NAME)
        with Browser(folder) as browser:
            opened(browser)
            browser.click('#names-run')
            names = browser.until('''[...document.querySelectorAll('#names-list li')]
                .map(item => item.textContent)''')
            require(len(names) == 12 and all(names), names)
            quiet(browser)


MODULE, PAGE = 'pkg/web_bg.wasm', b'<!doctype html><title>Not here</title>'
BROKEN = [
    # what, a file and its content, options of the browser, words of the message
    ('no module', (MODULE, None), {}, '404'),
    ('no bindings', ('pkg/web.js', None), {}, 'pkg/web.js could not be loaded'),
    ('no worker', ('worker.js', None), {}, 'worker.js'),
    ('a page', (MODULE, PAGE), {'wasm_type': 'text/html'}, 'something else (text/html)'),
    ('damaged', (MODULE, PAGE), {}, 'is damaged'),
    ('no WebAssembly', None, {'in_worker': 'self.WebAssembly = undefined'}, 'no WebAssembly'),
    ('policy', None, {'headers': {'Content-Security-Policy': "default-src 'self'"}},
     'Content-Security-Policy'),
]


def test_a_library_that_does_not_load_has_a_reason_and_can_be_tried_again():
    for what, change, options, words in BROKEN:
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(SITE, folder, dirs_exist_ok=True)
            if change:
                file = pathlib.Path(folder) / change[0]
                whole = file.read_bytes()
                file.unlink() if change[1] is None else file.write_bytes(change[1])
            with Browser(folder, **options) as browser:
                browser.open()
                text = alerted(browser, 'Try again', 30)
                print(f'    {what}: {text.splitlines()[2]}')
                require('The page cannot be loaded.' in text and words in text, text)
                require('null' not in text and 'undefined' not in text, text)
                require(text_of(browser, '#status') == 'Stopped', text_of(browser, '#status'))
                if what == 'no module':
                    shot(browser, 'no-module')
                if change and not options:
                    file.write_bytes(whole)
                    browser.click('#alert-actions button')
                    ready(browser)
                    browser.click('#run')
                    browser.until('window.teenyPage.step')
    # a server that does not know the type of modules is no obstacle
    with Browser(SITE, wasm_type='application/octet-stream') as browser:
        opened(browser)
        quiet(browser)


# the programs that `build` calls, without a compiler
STUBS = {
    '.ci/toolchain': '#!/bin/sh\n',
    'bin/cargo': '#!/bin/sh\nexit 0\n',
    'bin/wasm-bindgen-web': '#!/bin/sh\n'
                            '[ -e "$SERVED" ] && ls "$SERVED" >"$SERVED.seen"\n'
                            '[ -e "$SERVED.fails" ] && exit 1\n'
                            'mkdir "$2" && echo bindings >"$2/web.js"\n',
}


def test_a_build_replaces_the_served_page_only_when_it_is_complete():
    web = pathlib.Path(__file__).resolve().parent.parent
    with tempfile.TemporaryDirectory() as folder:
        root, site = pathlib.Path(folder), pathlib.Path(folder) / 'site'
        shutil.copytree(web / 'page', root / 'examples/web/page')
        shutil.copy(web / 'build', root / 'examples/web/build')
        for name, text in STUBS.items():
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text(text)
            (root / name).chmod(0o755)

        def build():
            return subprocess.run(
                ['bash', root / 'examples/web/build', site], capture_output=True, text=True,
                env={**os.environ, 'PATH': f'{root}/bin:{os.environ["PATH"]}',
                     'SERVED': str(site), 'WASM_TARGET': folder})
        result = build()
        require(result.returncode == 0, result.stderr)
        (site / 'left-over').touch()
        result = build()
        require(result.returncode == 0, result.stderr)
        # while the bindings are generated, the page is served
        seen = (root / 'site.seen').read_text().split()
        require('index.html' in seen and 'pkg' in seen, f'the served page has {seen}')
        require(not (site / 'left-over').exists(), 'a file of the page before is left')
        (root / 'site.fails').touch()
        (site / 'before').touch()
        require(build().returncode != 0, 'a failure is not reported')
        require((site / 'before').exists() and (site / 'pkg/web.js').exists(),
                'a build that failed has changed the served page')
        names = {path.name for path in root.iterdir()}
        require(not names & {'site.new', 'site.old'}, f'left over: {names}')

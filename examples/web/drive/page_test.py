"""Checks of the page in headless Chromium: page_test.py SITE SCREENS [NAME..].

Each function whose name begins with `test_` starts a browser, uses the page as a reader would, and
raises if something is not as it should be. Screenshots go to the folder SCREENS.
"""
import gzip
import os
import pathlib
import sys
import time
import traceback

import access_test
import failure_test
import tabs_test
from browser import Browser
from visit import (BAR, CIRCLE, GOAL, ONLY, SCREENS, SEVEN, SITE, TRAINING_LIMIT, Machine, alerted,
                   answers, choose, choose_engine, coloured, drawn, opened, paused, quiet, ready,
                   require, reset, saved_file, shot, trained, value)

MAX_BYTES = 1_750_000  # of the page, gzipped

# each of the GPU's devices, so that one can be lost; WebGPU is not there before the first message
RECORD_DEVICES = '''
    self.devices = [];
    self.addEventListener('message', () => {
      const request = GPUAdapter.prototype.requestDevice;
      GPUAdapter.prototype.requestDevice = async function (...options) {
        const device = await request.apply(this, options);
        self.devices.push(device);
        return device;
      };
    }, { once: true });
'''


def test_the_page_is_small():
    sizes = {path: len(gzip.compress(path.read_bytes(), 9))
             for path in pathlib.Path(SITE).rglob('*') if path.is_file()}
    total = sum(sizes.values())
    print(f'    {total} bytes gzipped in {len(sizes)} files')
    require(total < MAX_BYTES, f'{total} bytes gzipped')


def test_the_cpu_engine_trains_and_recognises_drawn_digits():
    machine = Machine()
    with Browser(SITE) as browser:
        opened(browser)
        print('    ready in', browser.evaluate('document.querySelector("#ready-time").textContent'))
        browser.click('#names-run')
        print(f'    {GOAL:.0%} after {trained(browser):.1f} s')
        for strokes, digit in [([CIRCLE], 0), ([BAR], 1), ([SEVEN], 7)]:
            drawn(browser, strokes, digit)
        browser.until('document.querySelectorAll("#names-list li").length', lambda n: n == 12)
        browser.until('window.teenyPage.epoch', lambda n: n >= 40)
        require(coloured(browser, '#layer') > 0.5, 'there are no pictures of the first layer')
        for plot in ('#loss-plot', '#accuracy-plot'):
            require(coloured(browser, plot) > 0.01, f'{plot} is empty')
        label = browser.evaluate('document.querySelector("#accuracy-plot").ariaLabel')
        require('% at step' in label, label)
        paused(browser)
        browser.click('#names-run')
        answers(browser, 'CPU', machine)
        browser.evaluate('scrollTo(0, 0)')
        shot(browser, 'desktop-light')
        browser.emulate(scheme='dark')
        time.sleep(0.5)
        shot(browser, 'desktop-dark')
        quiet(browser)


def test_the_convolutional_network_trains_on_the_cpu_engine():
    machine = Machine()
    with Browser(SITE) as browser:
        opened(browser)
        choose(browser, '#arch', 'cnn')
        browser.until('document.querySelector("#lr").value', lambda v: v == '0.01')
        print(f'    {GOAL:.0%} after {trained(browser):.1f} s')
        answers(browser, 'CNN', machine)
        quiet(browser)


def test_webgpu_trains_and_a_lost_gpu_goes_on_from_its_checkpoint():
    machine = Machine()
    with Browser(SITE, in_worker=RECORD_DEVICES) as browser:
        opened(browser)
        choose_engine(browser, 'webgpu')
        note = browser.evaluate('document.querySelector("#engine-note").textContent')
        print('    engine:', note)
        print(f'    {GOAL:.0%} after {trained(browser):.1f} s')
        drawn(browser, [CIRCLE], 0)
        browser.click('#names-run')
        browser.until('document.querySelectorAll("#names-list li").length', lambda n: n == 12)
        answers(browser, 'WebGPU', machine)
        shot(browser, 'webgpu')
        browser.until('window.teenyPage.checkpoint?.epoch', lambda n: n)
        # lost in the middle of training
        lost = browser.evaluate('self.devices.map(device => device.destroy()).length',
                                browser.workers[-1])
        require(lost == 1, f'{lost} devices of the GPU are known')
        browser.until('document.querySelector("#alert").hidden', lambda hidden: not hidden, 60)
        text = browser.evaluate('document.querySelector("#alert").innerText')
        require('lost' in text and 'Continue with the GPU from epoch' in text, text)
        require('help' not in text and 'Wgpu' not in text, text)
        browser.evaluate('scrollTo(0, 0)')
        shot(browser, 'webgpu-lost')
        epoch = value(browser, 'checkpoint.epoch')
        browser.click('#alert-actions button')
        ready(browser)
        require(value(browser, 'epoch') == epoch, 'the epoch is not that of the checkpoint')
        require(value(browser, 'accuracy') > 0.8, 'the accuracy is not that of the checkpoint')
        browser.click('#run')
        browser.until('window.teenyPage.epoch', lambda n: n > epoch, TRAINING_LIMIT)
        quiet(browser)


def test_a_refused_gpu_has_a_reason_and_the_cpu_trains():
    with Browser(SITE, flags=[]) as browser:
        opened(browser)
        reason = browser.until('document.querySelector("#webgpu-reason")?.textContent')
        print('   ', reason)
        require('not available' in reason, reason)
        require(browser.evaluate('document.querySelector(`#engine [value="webgpu"]`).disabled'),
                'WebGPU can be chosen')
        # opened all the same, as by an adapter that vanishes after the page has asked
        browser.evaluate('''(() => {
            const select = document.querySelector('#engine');
            select.querySelector('[value="webgpu"]').disabled = false;
            select.value = 'webgpu';
            select.dispatchEvent(new Event('change'));
        })()''')
        browser.until('document.querySelector("#alert").hidden', lambda hidden: not hidden, 60)
        text = browser.evaluate('document.querySelector("#alert").innerText')
        require('GPU cannot be used' in text and 'Use the CPU' in text, text)
        shot(browser, 'refused')
        browser.click('#alert-actions button:last-child')
        ready(browser)
        trained(browser)
        quiet(browser)


def test_checkpoints_are_saved_loaded_and_damaged_ones_refused():
    with Browser(SITE) as browser:
        browser.call('Browser.setDownloadBehavior', behavior='allow', downloadPath=browser.folder)
        opened(browser)
        trained(browser)
        paused(browser)
        saved = saved_file(browser)
        good = saved.read_bytes()
        epoch, step = value(browser, 'checkpoint.epoch'), value(browser, 'checkpoint.step')
        print(f'    {saved.name}, {len(good)} bytes')

        reset(browser)
        damaged = pathlib.Path(browser.folder) / 'damaged.safetensors'
        for what, data in [('truncated', good[:len(good) // 2]), ('empty', b''),
                           ('header', good[:8] + b'x' * 40 + good[48:]),
                           ('text', b'no checkpoint at all')]:
            damaged.write_bytes(data)
            browser.choose_file('#load', str(damaged))
            text = alerted(browser, 'not loaded')
            print(f'    {what}: {text.splitlines()[2]}')
            require(value(browser, 'step') == 0, 'a damaged file has changed the run')
            browser.click('#alert-actions button')
        browser.choose_file('#load', str(saved))
        browser.until('window.teenyPage.step', lambda n: n == step)
        require(value(browser, 'epoch') == epoch and value(browser, 'accuracy') > 0.8,
                'the run is not that of the file')
        browser.click('#run')
        browser.until('window.teenyPage.epoch', lambda n: n > epoch)
        quiet(browser)


def test_a_page_that_is_closed_while_training_goes_on_from_its_checkpoint():
    with Browser(SITE) as browser:
        opened(browser)
        trained(browser)
        browser.until('window.teenyPage.checkpoint?.epoch')
        time.sleep(3)  # a checkpoint is kept every two seconds, perhaps at this moment
        browser.open()  # the training goes on until the page is gone
        alerted(browser, 'last visit')
        ready(browser)
        browser.evaluate('scrollTo(0, 0)')
        shot(browser, 'last-visit')
        browser.click('#alert-actions button')
        epoch = browser.until('window.teenyPage.epoch')
        ready(browser)
        require(browser.until('window.teenyPage.accuracy') > 0.8, 'the checkpoint is not that good')
        print(f'    goes on from epoch {epoch}')
        quiet(browser)


def test_the_keyboard_alone_is_enough():
    with Browser(SITE) as browser:
        opened(browser)
        browser.evaluate('document.body.focus()')
        seen = []
        for _ in range(30):
            browser.press('Tab')
            focused = browser.evaluate('document.activeElement.id')
            if focused in seen:
                break
            seen.append(focused)
        wanted = ['engine', 'arch', 'lr', 'run', 'reset', 'pad', 'clear', 'previous', 'next',
                  'names-run', 'save', 'load', 'doctor-run']
        require([i for i in seen if i in wanted] == wanted, f'Tab goes through {seen}')

        def go_to(wanted):
            for _ in range(30):
                if browser.evaluate('document.activeElement.id') == wanted:
                    return
                browser.press('Tab')
            raise AssertionError(f'Tab does not reach {wanted}')
        go_to('run')
        outline = browser.evaluate('getComputedStyle(document.activeElement).outlineStyle')
        require(outline != 'none', 'the focus cannot be seen')
        browser.press(' ')
        browser.until('window.teenyPage.accuracy', lambda a: (a or 0) >= GOAL)
        go_to('next')
        browser.press('Enter')
        text = browser.until('document.querySelector("#pad-note").textContent',
                             lambda text: text.startswith('Test image 1'))
        digit = int(text[-1])
        browser.until('window.teenyPage.prediction', lambda p: p == digit, 30)
        go_to('run')
        browser.press('Enter')
        browser.until('document.querySelector("#status").textContent', lambda s: s == 'Paused')
        quiet(browser)


def test_a_phone_shows_the_page_without_scrolling_sideways():
    with Browser(SITE) as browser:
        browser.emulate(360, 740, touch=True)
        opened(browser)
        trained(browser)
        browser.click('#next')
        browser.until('window.teenyPage.prediction', lambda p: p is not None)
        browser.click('#names-run')
        browser.until('document.querySelectorAll("#names-list li").length', lambda n: n == 12)
        browser.click('#names-run')
        paused(browser)
        for width in (360, 320):
            browser.emulate(width, 740, touch=True)
            time.sleep(0.3)
            wide = browser.evaluate('document.documentElement.scrollWidth')
            require(wide <= width, f'{wide} pixels on a screen of {width}')
            small = browser.evaluate('''[...document.querySelectorAll('button, select, input')]
                .filter(e => e.checkVisibility() && e.getBoundingClientRect().height < 32)
                .map(e => e.id)''')
            require(not small, f'too small for a finger: {small}')
            beyond = browser.evaluate('''(() => {
                const best = document.querySelector('#bars .best .percent');
                best.textContent = '100.0 %';
                return best.scrollWidth - best.clientWidth;
            })()''')
            require(beyond <= 0, f'a certain answer is {beyond} pixels too wide')
        browser.emulate(360, 740, touch=True)
        below = browser.evaluate('''(() => {
            const [run, status] = ['#run', '#status'].map(selector => {
                const box = document.querySelector(selector).getBoundingClientRect();
                return box.top + box.height / 2;
            });
            return status - run;
        })()''')
        require(abs(below) < 2, f'the status is {below} pixels below the button')
        browser.evaluate('scrollTo(0, 0)')
        time.sleep(0.5)
        shot(browser, 'phone-light')
        browser.emulate(360, 740, scheme='dark', touch=True)
        time.sleep(0.5)
        shot(browser, 'phone-dark')
        # a finger draws
        x, y = browser.middle('#pad')
        browser.click('#clear')
        x, y = browser.middle('#pad')
        point = {'x': x, 'y': y - 80}
        browser.call('Input.dispatchTouchEvent', type='touchStart', touchPoints=[point])
        for i in range(1, 9):
            point = {'x': x, 'y': y - 80 + 20 * i}
            browser.call('Input.dispatchTouchEvent', type='touchMove', touchPoints=[point])
        browser.call('Input.dispatchTouchEvent', type='touchEnd', touchPoints=[])
        browser.until('window.teenyPage.prediction', lambda p: p == 1, 20)
        quiet(browser)


def examined(browser, engine):
    choose_engine(browser, engine)
    browser.click('#doctor-run')
    status = 'document.querySelector("#doctor-status").textContent'
    said = browser.until(status, lambda text: text.startswith('Done'), 300)
    require(said == 'Done: everything agrees', said)
    text = browser.evaluate('document.querySelector("#report").textContent')
    print('\n'.join('    ' + line for line in text.splitlines()))
    require('fine-tune an adapter of a small decoder: loss' in text, 'an adapter is trained')
    require('result   everything agrees' in text, 'the doctor has found something')
    cases = int(text.split('suite    ')[1].split()[0])
    require(cases >= 20, f'{cases} cases are too few')


def test_the_doctor_finds_both_engines_healthy():
    machine = Machine()
    with Browser(SITE) as browser:
        opened(browser)
        browser.call('Browser.grantPermissions', permissions=['clipboardReadWrite'])
        examined(browser, 'cpu')
        browser.click('#doctor-copy')
        browser.until('document.querySelector("#doctor-status").textContent',
                      lambda text: text.startswith(('Copied', 'Selected')))
        examined(browser, 'webgpu')
        answers(browser, 'doctor', machine)
        shot(browser, 'doctor')
        quiet(browser)


def main():
    os.makedirs(SCREENS, exist_ok=True)
    modules = (sys.modules[__name__], access_test, failure_test, tabs_test)
    tests = [(name, test) for module in modules for name, test in vars(module).items()
             if name.startswith('test_')]
    failed = []
    for name, test in tests:
        if ONLY and not any(part in name for part in ONLY):
            continue
        start = time.time()
        print(name, flush=True)
        try:
            test()
        except Exception:
            failed.append(name)
            traceback.print_exc(file=sys.stdout)
            print(f'FAILED ({time.time() - start:.1f} s)', flush=True)
        else:
            print(f'ok ({time.time() - start:.1f} s)', flush=True)
    print('FAILED: ' + ', '.join(failed) if failed else 'all checks of the page passed')
    sys.exit(bool(failed))


main()

"""Checks of what a visitor reads, hears and reaches: words, live regions, the keyboard, fields, the
question before a reset, large text."""
import time

from browser import Browser
from visit import (GOAL, SEVEN, SITE, alerted, choose, choose_engine, coloured, opened, paused,
                   quiet, ready, require, reset, saved_file, shot, text_of, trained, value)

PROGRAMMERS = ['help:', 'wasm32', 'simd128', 'wgpu', 'panicked', 'undefined', 'null', 'nan',
               '[object', 'tensor']


def test_a_visitor_reads_no_words_for_programmers():
    with Browser(SITE) as browser:
        opened(browser)
        for engine in ('webgpu', 'cpu'):
            choose_engine(browser, engine)
            print('   ', text_of(browser, '#engine-note'))
            words = text_of(browser, 'body').lower().split()
            found = [word for word in PROGRAMMERS if any(w.startswith(word) for w in words)]
            require(not found, f'the page says {found}')
        require(text_of(browser, '#run') == 'Start', 'the first button')
        shot(browser, 'before')
        browser.click('#run')
        browser.until('window.teenyPage.step')
        paused(browser)
        require(text_of(browser, '#run') == 'Continue', 'the button of a paused run')
        browser.click('#names-run')
        browser.until('window.teenyPage.namesStep')
        browser.click('#names-run')
        require(text_of(browser, '#names-run') == 'Continue', 'the button of paused names')
        reset(browser)
        require(text_of(browser, '#run') == 'Start', 'the button after a reset')
        quiet(browser)


def test_screen_readers_hear_one_message_a_second_at_most():
    with Browser(SITE) as browser:
        opened(browser)
        regions = browser.evaluate('''
            [...document.querySelectorAll('[role="status"], output, [aria-live]')]
                .filter(e => e.getAttribute('aria-live') !== 'off').map(e => e.id)''')
        require(regions == ['live'], f'live regions: {regions}')
        time.sleep(2)
        browser.evaluate('''(() => {
            const live = document.querySelector('#live');
            window.heard = [];
            new MutationObserver(() => window.heard.push([performance.now(), live.textContent]))
                .observe(live, { childList: true });
        })()''')
        browser.click('#run')
        browser.click('#names-run')
        browser.draw('#pad', [SEVEN])
        for _ in range(8):
            browser.click('#next')
            time.sleep(0.2)
        browser.until('window.teenyPage.accuracy', lambda a: (a or 0) >= GOAL)
        paused(browser)
        browser.until('window.heard.map(([, text]) => text)', lambda heard: 'Paused' in heard, 15)
        time.sleep(3)
        heard = browser.evaluate('window.heard')
        print('    heard:', [text for _, text in heard])
        gaps = [b - a for (a, _), (b, _) in zip(heard, heard[1:])]
        require(min(gaps) >= 950, f'a gap of {min(gaps):.0f} ms')
        texts = ' '.join(text for _, text in heard)
        require('Training' in texts and 'The network reads' in texts, texts)
        require('loss' not in texts, 'the figures of each step are said')
        quiet(browser)


def test_the_keyboard_draws():
    with Browser(SITE) as browser:
        opened(browser)
        trained(browser)
        browser.evaluate('document.querySelector("#reset").focus()')
        browser.press('Tab')
        require(browser.evaluate('document.activeElement.id') == 'pad', 'Tab does not reach it')
        cursor = 'document.querySelector("#pad-cursor")'
        require(not browser.evaluate(f'{cursor}.hidden'), 'the cursor cannot be seen')
        keys = browser.evaluate('''document.getElementById(
            document.querySelector('#pad').getAttribute('aria-describedby')).textContent''')
        require('arrow keys' in keys and 'Space' in keys and 'Escape' in keys, keys)
        for _ in range(9):
            browser.press('ArrowUp')
        browser.press(' ')
        for _ in range(18):
            browser.press('ArrowDown')
        browser.until(f'{cursor}.className', lambda c: c == 'down')
        browser.until('window.teenyPage.prediction', lambda p: p == 1, 20)
        shot(browser, 'pad-keyboard')
        browser.press(' ')
        inked = coloured(browser, '#pad')
        top = browser.evaluate(f'{cursor}.getBoundingClientRect().left')
        for _ in range(5):
            browser.press('ArrowLeft')
        require(browser.evaluate(f'{cursor}.getBoundingClientRect().left') < top, 'it stays')
        require(coloured(browser, '#pad') == inked, 'a lifted pen draws')
        browser.press('Escape')
        browser.until('window.teenyPage.prediction', lambda p: p is None)
        require(coloured(browser, '#pad') == 0, 'Escape does not clear')
        for _ in range(60):
            browser.press('ArrowRight')  # the edge holds it
        box = browser.evaluate(f'''(() => {{
            const [pad, cursor] = [document.querySelector('#pad'), {cursor}]
                .map(e => e.getBoundingClientRect());
            return cursor.left + cursor.width / 2 - pad.right;
        }})()''')
        require(abs(box) < 2, f'the cursor is {box} pixels beyond the edge')
        quiet(browser)


def test_a_learning_rate_out_of_range_is_refused_beside_its_field():
    with Browser(SITE) as browser:
        opened(browser)
        browser.evaluate('''(() => {
            window.sent = [];
            const { worker } = window.teenyPage;
            const post = worker.postMessage.bind(worker);
            worker.postMessage = (message, ...rest) => {
                window.sent.push(message);
                post(message, ...rest);
            };
        })()''')
        for text in ('1e9', '0', '-1', '', '0.00009', '10.5'):
            choose(browser, '#lr', text)
            error = text_of(browser, '#lr-error')
            require('from 0.0001 to 10' in error, f'{text!r}: {error!r}')
            browser.click('#run')
            require(browser.evaluate('document.activeElement.id') == 'lr', 'the focus is elsewhere')
            require(not value(browser, 'isRunning'), f'it trains with {text!r}')
        shot(browser, 'learning-rate')
        require(not browser.evaluate('window.sent.length'), 'the worker was told')
        for text in ('0.0001', '10', '0.3'):
            choose(browser, '#lr', text)
            require(text_of(browser, '#lr-error') == '', f'{text} is refused')
        sent = browser.evaluate('window.sent.at(-1)')
        require(sent == {'kind': 'lr', 'lr': 0.3}, f'{sent} was sent')
        trained(browser)
        quiet(browser)


def test_a_reset_asks_when_there_is_progress_to_lose():
    with Browser(SITE) as browser:
        opened(browser)
        is_open = 'document.querySelector("#ask-dialog").open'
        browser.click('#reset')
        require(not browser.evaluate(is_open), 'it asks without a step')
        trained(browser)
        paused(browser)
        step = value(browser, 'step')
        browser.evaluate('document.querySelector("#reset").focus()')
        browser.press('Enter')
        require(browser.evaluate(is_open), 'it does not ask')
        focused = browser.evaluate('document.activeElement.textContent')
        require(focused == 'Keep the training', f'the focus is on {focused}')
        shot(browser, 'reset')
        browser.press('Escape')
        browser.until(is_open, lambda o: not o)
        require(browser.evaluate('document.activeElement.id') == 'reset', 'the focus is lost')
        choose(browser, '#arch', 'cnn')
        browser.until(is_open)
        browser.press('Enter')
        browser.until('document.querySelector("#arch").value', lambda v: v == 'mlp')
        require(value(browser, 'step') == step, 'the run was reset all the same')
        reset(browser)
        require(value(browser, 'accuracy') is None, 'the accuracy is that of the run before')
        quiet(browser)


def test_a_checkpoint_replaces_a_run_only_after_a_question():
    with Browser(SITE) as browser:
        browser.call('Browser.setDownloadBehavior', behavior='allow', downloadPath=browser.folder)
        opened(browser)
        trained(browser)
        paused(browser)
        saved, step = str(saved_file(browser)), value(browser, 'step')
        is_open = 'document.querySelector("#ask-dialog").open'
        browser.click('#run')
        browser.until('window.teenyPage.step', lambda n: n > step + 20)
        browser.choose_file('#load', saved)
        browser.until(is_open, seconds=10)
        text = text_of(browser, '#ask-dialog')
        require('Load the file?' in text and 'Keep the training' in text, text)
        shot(browser, 'load')
        browser.press('Escape')
        later = value(browser, 'step')
        browser.until('window.teenyPage.step', lambda n: n > later)
        require(value(browser, 'isRunning'), 'the training has stopped')
        # the same file once more
        browser.choose_file('#load', saved)
        browser.until(is_open, seconds=10)
        browser.click('#ask-confirm')
        browser.until('document.querySelector("#checkpoint-status").textContent',
                      lambda text: text.startswith('Loaded'))
        require(value(browser, 'step') == step, 'the run is not that of the file')
        # as does the checkpoint of the last visit
        time.sleep(0.5)
        browser.open()
        alerted(browser, 'last visit')
        ready(browser)
        browser.click('#run')
        browser.until('window.teenyPage.step')
        browser.click('#alert-actions button')
        browser.until(is_open, seconds=10)
        browser.press('Escape')
        alerted(browser, 'last visit')
        require(value(browser, 'isRunning'), 'the training has stopped')
        browser.click('#alert-actions button')
        browser.click('#ask-confirm')
        browser.until('window.teenyPage.accuracy', lambda a: (a or 0) > 0.8, 20)
        quiet(browser)


def test_text_of_twice_the_size_is_readable():
    with Browser(SITE) as browser:
        opened(browser)
        trained(browser)
        browser.click('#next')
        browser.click('#names-run')
        browser.until('document.querySelectorAll("#names-list li").length', lambda n: n == 12)
        paused(browser)
        fonts = '''['#loss-plot', '#accuracy-plot'].map(
            plot => parseFloat(document.querySelector(plot).getContext('2d').font))'''
        require(browser.evaluate(fonts) == [12, 12], browser.evaluate(fonts))
        browser.evaluate('document.documentElement.style.fontSize = "200%"')
        browser.until(fonts, lambda f: f == [24, 24], 10)
        for width in (1100, 640, 360):
            browser.emulate(width, 1400)
            time.sleep(0.5)
            wide = browser.evaluate('document.documentElement.scrollWidth')
            require(wide <= width, f'{wide} pixels on a screen of {width}')
            shot(browser, f'text-200-{width}')
        quiet(browser)


# text on its background (4.5 to 1), edges of controls and the lines of plots (3 to 1)
CONTRASTS = [('text', 'card', 4.5), ('text', 'background', 4.5), ('muted', 'card', 4.5),
             ('muted', 'background', 4.5), ('text', 'bad-background', 4.5), ('bad', 'card', 4.5),
             ('bad', 'bad-background', 4.5), ('on-accent', 'accent', 4.5), ('accent', 'card', 4.5),
             ('edge', 'card', 3), ('ink', 'paper', 3), ('positive', 'card', 3),
             ('negative', 'card', 3)]


def luminance(color):
    parts = [int(color[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_have_the_contrast_of_wcag_aa():
    with Browser(SITE) as browser:
        opened(browser)
        for scheme in ('light', 'dark'):
            browser.emulate(scheme=scheme)
            for front, back, least in CONTRASTS:
                low, high = sorted(luminance(browser.evaluate(
                    'getComputedStyle(document.documentElement)'
                    f".getPropertyValue('--{name}').trim()")) for name in (front, back))
                ratio = (high + 0.05) / (low + 0.05)
                require(ratio >= least, f'{scheme}: {front} on {back} has {ratio:.2f}')

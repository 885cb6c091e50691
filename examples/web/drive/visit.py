"""What the checks have in common: what a visitor does, and what the page then shows."""
import math
import pathlib
import sys
import threading
import time

SITE, SCREENS, *ONLY = sys.argv[1:]
GOAL = 0.9  # of the test images
MOST_GAP = 100  # milliseconds in which the page's own thread must answer
TRAINING_LIMIT = 420  # seconds; WebGPU is emulated by the processor here
CIRCLE = [(0.5 + 0.2 * math.sin(a / 16 * math.tau), 0.5 - 0.3 * math.cos(a / 16 * math.tau))
          for a in range(17)]
BAR = [(0.5, 0.2 + 0.06 * i) for i in range(11)]
SEVEN = [(0.3 + 0.05 * i, 0.22) for i in range(9)] + [(0.7 - 0.025 * i, 0.22 + 0.06 * i)
                                                      for i in range(1, 11)]


def value(browser, name):
    return browser.evaluate(f'window.teenyPage?.{name}')


def ready(browser, seconds=120):
    browser.until('document.documentElement?.dataset.state', lambda s: s in ('ready', 'running'),
                  seconds)


def opened(browser, path='/index.html'):
    browser.open(path)
    ready(browser)


def choose(browser, selector, option):
    """Chooses an option, or writes into a field, as a visitor who then goes on."""
    browser.evaluate(f'''(() => {{
        const field = document.querySelector('{selector}');
        field.value = '{option}';
        field.dispatchEvent(new Event('input'));
        field.dispatchEvent(new Event('change'));
    }})()''')


def text_of(browser, selector):
    return browser.evaluate(f"document.querySelector('{selector}')?.innerText ?? ''")


def alerted(browser, words, seconds=60):
    """Waits for an alert with `words`; its text."""
    return browser.until('document.querySelector("#alert:not([hidden])")?.innerText ?? ""',
                         lambda text: words in text, seconds)


def is_alerted(browser):
    return not browser.evaluate('document.querySelector("#alert").hidden')


def paused(browser):
    browser.click('#run')
    browser.until('document.querySelector("#status").textContent', lambda s: s == 'Paused')
    # the worker may have taken some steps more, and keeps a checkpoint
    browser.until('window.teenyPage.checkpoint?.step === window.teenyPage.step')


def reset(browser):
    """Resets a run that has made progress."""
    browser.click('#reset')
    browser.click('#ask-confirm')
    browser.until('window.teenyPage.step', lambda step: step == 0)


def replace_by(browser, path):
    """Loads a file over a run that has made progress."""
    browser.choose_file('#load', str(path))
    browser.until('document.querySelector("#ask-dialog").open', seconds=10)
    browser.click('#ask-confirm')


def saved_file(browser):
    """Saves a checkpoint to a file; its path."""
    browser.click('#save')
    browser.until('document.querySelector("#checkpoint-status").textContent',
                  lambda text: text.startswith('Saved'))
    end = time.time() + 20
    while not (files := list(pathlib.Path(browser.folder).glob('*.safetensors'))):
        require(time.time() < end, 'no file was saved')
        time.sleep(0.1)
    return files[0]


def choose_engine(browser, engine):
    browser.until(f'''!document.querySelector('#engine [value="{engine}"]').disabled''')
    choose(browser, '#engine', engine)
    ready(browser)


def require(holds, text):
    if not holds:
        raise AssertionError(text)


def quiet(browser):
    require(not browser.problems, f'errors in the console: {browser.problems}')


class Machine(threading.Thread):
    """Measures how long this machine keeps a thread waiting that sleeps 10 ms at a time."""

    def __init__(self):
        super().__init__(daemon=True)
        self.longest = 0  # milliseconds beyond the sleep
        self.start()

    def run(self):
        last = time.monotonic()
        while True:
            time.sleep(0.01)
            now = time.monotonic()
            self.longest = max(self.longest, (now - last) * 1000 - 10)
            last = now


def answers(browser, what, machine):
    """The page's thread has answered all the time, if the machine let it."""
    gap = value(browser, 'longestGap')
    print(f'    {what}: the longest pause of the page was {gap:.0f} ms, '
          f'of an idle thread {machine.longest:.0f} ms')
    require(gap <= MOST_GAP + machine.longest, f'the page did not answer for {gap:.0f} ms')


def trained(browser):
    """Trains to the goal; the seconds it took."""
    start = time.time()
    browser.click('#run')
    browser.until('window.teenyPage.accuracy', lambda a: (a or 0) >= GOAL, TRAINING_LIMIT)
    return time.time() - start


def drawn(browser, strokes, digit):
    browser.click('#clear')
    browser.draw('#pad', strokes)
    browser.until('window.teenyPage.prediction', lambda p: p == digit, 60)


def coloured(browser, selector):
    """The share of a canvas that is not transparent."""
    return browser.evaluate(f'''(() => {{
        const canvas = document.querySelector('{selector}');
        const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
        let count = 0;
        for (let i = 3; i < data.length; i += 4) count += data[i] > 0;
        return 4 * count / data.length;
    }})()''')


def shot(browser, name):
    browser.shot(f'{SCREENS}/{name}.png')

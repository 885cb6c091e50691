"""Headless Chromium, driven by the DevTools protocol over a pipe: Python's standard library alone.

    with Browser(site) as browser:
        browser.open('/')
        browser.until('document.title', lambda title: title == 'done')

Messages are JSON that ends with a NUL, on descriptor 3 (to the browser) and 4 (from it). The folder
`site` is served on 127.0.0.1, with WebAssembly's content type.
"""
import base64
import fcntl
import functools
import http.server
import json
import os
import select
import shutil
import subprocess
import tempfile
import threading
import time

WEBGPU = ['--enable-unsafe-webgpu']  # SwiftShader, where there is no GPU
FLAGS = ['--headless=new', '--no-sandbox', '--disable-dev-shm-usage', '--no-first-run',
         '--disable-extensions', '--remote-debugging-pipe']


class Handler(http.server.SimpleHTTPRequestHandler):
    extensions_map = {**http.server.SimpleHTTPRequestHandler.extensions_map,
                      '.wasm': 'application/wasm', '.js': 'text/javascript'}

    headers_of_all = {}

    def end_headers(self):
        for name, value in self.headers_of_all.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, *_):
        pass


class Browser:
    """A browser with a page. `in_worker` is a script that each worker runs before its own,
    `headers` are those of every response, `wasm_type` is the content type of WebAssembly."""

    def __init__(self, site, flags=WEBGPU, size=(1100, 1400), in_worker='', headers=None,
                 wasm_type='application/wasm'):
        self.number, self.buffer = 0, b''
        self.problems = []  # exceptions and errors of the console, of the page and its workers
        self.workers = []  # their sessions
        self.in_worker = in_worker
        kind = type('Handler', (Handler,), {
            'extensions_map': {**Handler.extensions_map, '.wasm': wasm_type},
            'headers_of_all': headers or {}})
        handler = functools.partial(kind, directory=site)
        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f'http://127.0.0.1:{self.server.server_address[1]}'
        self.folder = tempfile.mkdtemp()  # the profile, and what is downloaded
        # descriptors above 20, so that dup2 to 3 and 4 in the child overwrites neither
        (from_us, self.out), (self.input, to_us) = [
            tuple(fcntl.fcntl(f, fcntl.F_DUPFD, 20) for f in os.pipe()) for _ in range(2)]

        def child():
            os.dup2(from_us, 3)
            os.dup2(to_us, 4)
        self.process = subprocess.Popen(
            ['chromium', *FLAGS, *flags, f'--user-data-dir={self.folder}/profile',
             f'--window-size={size[0]},{size[1]}', 'about:blank'],
            preexec_fn=child, pass_fds=(3, 4), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.tab()

    def tab(self):
        """Opens a tab, with which all calls deal from now on; its session and target."""
        self.session = None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        attached = self.call('Target.attachToTarget', targetId=target, flatten=True)
        self.session = attached['sessionId']
        for domain in ('Runtime', 'Log', 'Page', 'DOM'):
            self.call(domain + '.enable')
        self.call('Target.setAutoAttach', autoAttach=True, waitForDebuggerOnStart=True,
                  flatten=True)
        self.first = getattr(self, 'first', (self.session, target))
        return self.session, target

    def show(self, tab):
        """Goes back to a tab."""
        self.session = tab[0]
        self.call('Page.bringToFront')

    def close_tab(self, tab):
        session, self.session = self.session, None
        self.call('Target.closeTarget', targetId=tab[1])
        self.session = session

    # ---- the protocol ----

    def send(self, method, session, params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if session:
            message['sessionId'] = session
        os.write(self.out, json.dumps(message).encode() + b'\0')
        return self.number

    def call(self, method, session=None, seconds=120, **params):
        """The result of a command; raises on its error."""
        number = self.send(method, session or self.session, params)
        end = time.time() + seconds
        while (answer := self.read(end - time.time())) is not None:
            if answer.get('id') == number:
                if 'error' in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer['result']
        raise TimeoutError(f'{method} has no answer after {seconds} s')

    def read(self, seconds):
        """The next message, after what it is about has been noted; None after `seconds`."""
        while b'\0' not in self.buffer:
            if not select.select([self.input], [], [], max(0, seconds))[0]:
                return None
            part = os.read(self.input, 1 << 20)
            if not part:
                raise EOFError('the browser has ended')
            self.buffer += part
        one, self.buffer = self.buffer.split(b'\0', 1)
        message = json.loads(one)
        method, params = message.get('method'), message.get('params', {})
        if method == 'Runtime.exceptionThrown':
            details = params['exceptionDetails']
            self.problems.append(details.get('exception', {}).get('description', details['text']))
        elif method == 'Runtime.consoleAPICalled' and params['type'] == 'error':
            values = [a.get('value', a.get('description')) for a in params['args']]
            self.problems.append(str(values))
        elif method == 'Log.entryAdded' and params['entry']['level'] == 'error':
            self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == 'Target.attachedToTarget':
            session = params['sessionId']
            if params['targetInfo']['type'] == 'worker':
                self.workers.append(session)
                self.send('Runtime.enable', session, {})
                if self.in_worker:
                    self.send('Runtime.evaluate', session, {'expression': self.in_worker})
            self.send('Runtime.runIfWaitingForDebugger', session, {})
        elif method == 'Target.detachedFromTarget' and params['sessionId'] in self.workers:
            self.workers.remove(params['sessionId'])
        return message

    # ---- the page ----

    def open(self, path='/index.html'):
        self.call('Page.navigate', url=self.address + path)

    def evaluate(self, js, session=None):
        """The value of an expression; a promise is awaited."""
        result = self.call('Runtime.evaluate', session, expression=js, returnByValue=True,
                           awaitPromise=True)
        if 'exceptionDetails' in result:
            raise RuntimeError(f"{js}: {result['exceptionDetails']}")
        return result['result'].get('value')

    def until(self, js, holds=bool, seconds=120):
        """Asks for an expression until `holds` of it, and returns its value."""
        end = time.time() + seconds
        while True:
            value = self.evaluate(js)
            if holds(value):
                return value
            if time.time() > end:
                raise TimeoutError(f'{js} is {value!r} after {seconds} s; the page says:\n'
                                   + self.evaluate('document.body.innerText'))
            time.sleep(0.1)

    def click(self, selector):
        """Clicks the middle of an element with the mouse."""
        x, y = self.middle(selector)
        for kind in ('mousePressed', 'mouseReleased'):
            self.call('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', clickCount=1)

    def middle(self, selector):
        box = self.evaluate(f'''(() => {{
            const element = document.querySelector({selector!r});
            element.scrollIntoView({{ block: 'center', behavior: 'instant' }});
            const box = element.getBoundingClientRect();
            return [box.x, box.y, box.width, box.height];
        }})()''')
        return box[0] + box[2] / 2, box[1] + box[3] / 2

    def draw(self, selector, strokes):
        """Draws strokes with the mouse; points are from 0 to 1 in the element."""
        self.middle(selector)  # scrolls to it
        x, y, width, height = self.evaluate(f'''(() => {{
            const box = document.querySelector({selector!r}).getBoundingClientRect();
            return [box.x, box.y, box.width, box.height];
        }})()''')
        for stroke in strokes:
            points = [(x + u * width, y + v * height) for u, v in stroke]
            kinds = ['mousePressed'] + ['mouseMoved'] * (len(points) - 1)
            for kind, (px, py) in zip(kinds, points):
                self.call('Input.dispatchMouseEvent', type=kind, x=px, y=py, button='left',
                          buttons=1, clickCount=1)
            self.call('Input.dispatchMouseEvent', type='mouseReleased', x=points[-1][0],
                      y=points[-1][1], button='left', clickCount=1)

    def press(self, key, code=None, modifiers=0):
        """Presses and releases a key."""
        codes = {'Tab': 9, 'Enter': 13, 'Escape': 27, ' ': 32, 'ArrowLeft': 37, 'ArrowUp': 38,
                 'ArrowRight': 39, 'ArrowDown': 40}
        params = {'key': key, 'code': code or {' ': 'Space'}.get(key, key),
                  'windowsVirtualKeyCode': codes[key], 'modifiers': modifiers}
        text = {'Enter': '\r', ' ': ' '}.get(key)
        down = {'type': 'keyDown', 'text': text} if text else {'type': 'rawKeyDown'}
        self.call('Input.dispatchKeyEvent', **down, **params)
        self.call('Input.dispatchKeyEvent', type='keyUp', **params)

    def choose_file(self, selector, path):
        document = self.call('DOM.getDocument')['root']['nodeId']
        node = self.call('DOM.querySelector', nodeId=document, selector=selector)['nodeId']
        self.call('DOM.setFileInputFiles', nodeId=node, files=[path])

    def emulate(self, width=None, height=None, scheme='light', touch=False):
        """The size of the window, the colour scheme, a phone's screen."""
        if width:
            self.call('Emulation.setDeviceMetricsOverride', width=width, height=height,
                      deviceScaleFactor=2 if touch else 1, mobile=touch)
        self.call('Emulation.setEmulatedMedia',
                  features=[{'name': 'prefers-color-scheme', 'value': scheme}])

    def shot(self, path):
        """The whole page as a picture."""
        size = self.call('Page.getLayoutMetrics')['cssContentSize']
        clip = {'x': 0, 'y': 0, 'width': self.evaluate('innerWidth'), 'height': size['height'],
                'scale': 1}
        data = self.call('Page.captureScreenshot', format='png', captureBeyondViewport=True,
                         clip=clip)
        with open(path, 'wb') as file:
            file.write(base64.b64decode(data['data']))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.session = None
            self.call('Browser.close', seconds=10)
        except (RuntimeError, TimeoutError, EOFError, OSError):
            pass
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.server.shutdown()
        shutil.rmtree(self.folder, ignore_errors=True)

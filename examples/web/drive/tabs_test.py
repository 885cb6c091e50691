"""Checks of the browser's database of checkpoints, which tabs share."""
import time

from browser import Browser
from visit import (SITE, alerted, choose, is_alerted, opened, paused, quiet, ready, require,
                   trained, value)

# flips a bit of each checkpoint in the database; the number of checkpoints before and after
DAMAGE = '''new Promise((resolve, reject) => {
    const opening = indexedDB.open('teeny');
    opening.onerror = reject;
    opening.onsuccess = () => {
        const database = opening.result;
        const transaction = database.transaction('checkpoints', 'readwrite');
        const store = transaction.objectStore('checkpoints');
        const reading = store.getAll();
        reading.onsuccess = () => reading.result.forEach(record => {
            record.bytes[record.bytes.length - 5] ^= 1;
            store.put(record, record.tab);
        });
        transaction.oncomplete = () => {
            database.close();
            resolve(reading.result.length);
        };
    };
})'''


def test_two_tabs_keep_their_own_checkpoints():
    with Browser(SITE) as browser:
        first = browser.first
        opened(browser)
        trained(browser)
        paused(browser)
        epoch = value(browser, 'epoch')
        second = browser.tab()
        opened(browser)
        time.sleep(1)
        require(not is_alerted(browser), 'the checkpoint of a tab that is open is offered')
        # a duplicated tab has a copy of the key
        key = "sessionStorage.getItem('teeny-tab-')"
        browser.show(first)
        of_first = browser.evaluate(key)
        browser.show(second)
        browser.evaluate(f"sessionStorage.setItem('teeny-tab-', '{of_first}')")
        opened(browser)
        browser.until(key, lambda k: k not in (None, of_first), 10)
        require(not is_alerted(browser), 'the checkpoint of the other tab is offered')
        choose(browser, '#arch', 'cnn')
        browser.until('document.querySelector("#lr").value', lambda v: v == '0.01')
        browser.click('#run')
        browser.until('window.teenyPage.epoch', lambda n: n >= 1)
        paused(browser)
        time.sleep(0.5)
        # after a reload each tab is offered its own
        for tab, words in [(first, f'fully connected network, epoch {epoch},'),
                           (second, 'convolutional network, epoch')]:
            browser.show(tab)
            browser.open()
            text = alerted(browser, 'last visit')
            print('   ', text.splitlines()[2])
            require(words in text, text)
            ready(browser)
        # a new tab is offered the newest of those that are closed
        third = browser.tab()
        browser.close_tab(second)
        browser.close_tab(first)
        time.sleep(0.5)
        browser.show(third)
        browser.open()
        text = alerted(browser, 'last visit')
        require('convolutional' in text, text)
        browser.click('#alert-actions button')
        browser.until('window.teenyPage.arch', lambda arch: arch == 'cnn')
        ready(browser)
        require(browser.until('window.teenyPage.step'), 'the run is not that of the checkpoint')
        quiet(browser)


def test_a_damaged_checkpoint_of_the_last_visit_is_refused_and_forgotten():
    with Browser(SITE) as browser:
        opened(browser)
        trained(browser)
        paused(browser)
        time.sleep(0.5)
        require(browser.evaluate(DAMAGE) == 1, 'there is not one checkpoint')
        browser.open()
        alerted(browser, 'last visit')
        ready(browser)
        browser.click('#alert-actions button')
        text = alerted(browser, 'cannot be used')
        print('   ', text.splitlines()[2])
        require('damaged' in text, text)
        ready(browser)
        require(value(browser, 'step') == 0, 'the run is not a new one')
        require(browser.evaluate(DAMAGE) == 0, 'the checkpoint is still there')
        browser.click('#alert-actions button')
        trained(browser)
        quiet(browser)

// The promises of the search box, on the site of tests. Each part is a function that gets a new page of the browser and
// the address of the site.

const { BOLLARDS, LANGUAGES } = require('./site.cjs');
const { QUIET_MS, WAIT_MS, ask, eventually, isQuestion, pause, promise, withoutForm } = require('./view.cjs');

// What `structure` looks at.
function describeBox() {
  const host = document.querySelector('docwharf-search');
  const root = host.shadowRoot;
  const attributes = (selector) => {
    const element = root.querySelector(selector);
    return Object.fromEntries(element.getAttributeNames().map((name) => [name, element.getAttribute(name)]));
  };
  const list = root.querySelector('[role=listbox]');
  const { backgroundColor, opacity } = getComputedStyle(root.querySelector('dialog'));
  return {
    mode: root.mode,
    dialog: attributes('dialog'),
    input: attributes('input'),
    list: attributes('[role=listbox]'),
    isStatusInDialog: root.querySelector('dialog').contains(root.querySelector('[role=status]')),
    children: [...list.children].map(({ nodeName, role, href }) => [nodeName, role, /^http/.test(href)].join()),
    inner: [...new Set([...list.querySelectorAll('*')].map((one) => one.nodeName))].sort().join(),
    styles: root.querySelectorAll('style, [style]').length + Number(host.hasAttribute('style')),
    sections: root.querySelectorAll('.section').length,
    stored: [document.cookie, localStorage.length, sessionStorage.length].join(),
    appearance: [backgroundColor, opacity].join(' '),
  };
}

async function structure(view, url) {
  await view.visit(`${url}anchors.html`);
  await view.openBox('Control+k');
  const { status } = await view.search('hawser');
  promise('a status region tells the number of results', /^Results: \d+\./.test(status), status);
  const found = await view.run(describeBox);
  const { dialog, input, list } = found;
  promise('the shadow root is open', found.mode === 'open');
  const isDialog = dialog.role === 'dialog' && dialog['aria-modal'] === 'true' && dialog['aria-label'];
  promise('the box is a modal dialog with a name', isDialog, dialog);
  const isCombobox = input.role === 'combobox' && input['aria-autocomplete'] === 'list' && input['aria-label']
    && input['aria-controls'] === list.id && input['aria-expanded'] === 'true' && input['aria-activedescendant'];
  promise('the input is a combobox of ARIA 1.2', isCombobox, input);
  promise('the results are a listbox with a name', list.role === 'listbox' && list['aria-label'], list);
  promise('the status is in the dialog', found.isStatusInDialog);
  const areLinks = found.children.length > 0 && found.children.every((one) => one === 'A,option,true');
  promise('each option is a link', areLinks, found.children);
  promise('results have titles, excerpts and marks only', found.inner === 'A,MARK,SPAN', found.inner);
  promise('there are no style elements and no style attributes', found.styles === 0);
  promise('further sections of a page are options, too', found.sections > 0);
  promise('nothing is stored', found.stored === ',0,0', found.stored);
  const isStyled = found.appearance === 'rgb(255, 255, 255) 1';
  promise('the style of the site does not reach the box', isStyled, found.appearance);
  view.wasQuiet();
}

async function keys(view, url) {
  await view.visit(url);
  for (const [id, property] of [['plain', 'value'], ['area', 'value'], ['editable', 'textContent']]) {
    await view.run((one) => document.getElementById(one).focus(), id);
    await view.press('/');
    const text = await view.run((one, name) => document.getElementById(one)[name], id, property);
    promise(`/ is a character in #${id}`, text === '/' && !(await view.box()).isOpen, text);
  }
  const seen = await view.run(() => window.seen.length);
  await view.openBox('Control+k');
  await view.press('Control+k');
  await eventually('Ctrl-K closes the box again', () => view.box(), (box) => !box.isOpen);
  await view.openBox('Meta+k');
  await view.search('bollard');
  await view.press('/');
  promise('no shortcut reaches the site', await view.run(() => window.seen.length) === seen);
  await view.press('Backspace');
  const { options, status } = await view.search('bollard');
  promise('the status tells the number of pages', status === `Results: ${BOLLARDS}.`, status);
  await view.press('ArrowUp');
  const last = await view.box();
  promise('ArrowUp goes from the first result to the last', last.active === `option-${options.length - 1}`, last);
  promise('the active result is in view', await view.inBox((root) => {
    const list = root.querySelector('[role=listbox]').getBoundingClientRect();
    const option = root.querySelector('[aria-selected=true]').getBoundingClientRect();
    return option.top >= list.top - 1 && option.bottom <= list.bottom + 1;
  }));
  await view.press('ArrowDown');
  promise('ArrowDown goes from the last result to the first', (await view.box()).active === 'option-0');
  await opensTab(view, options[0].href);
  // Enter before the answer has come opens the first result of what was typed, and not of what is listed.
  await view.press('Control+a');
  await view.type('tackle');
  await view.press('Enter');
  await view.landsOn(`${url}anchors.html`);
  view.wasQuiet();
}

async function opensTab(view, href) {
  const opened = view.context.waitForEvent('page', { timeout: WAIT_MS }).catch(() => null);
  await view.press('Control+Enter');
  const tab = await opened;
  promise('Ctrl-Enter opens a tab', tab);
  const expected = withoutForm(new URL(href).pathname);
  await eventually('the tab has the result', async () => tab.url(),
    (now) => now.startsWith('http') && withoutForm(new URL(now).pathname) === expected);
  await tab.close();
  await view.page.bringToFront();
  promise('the page is still there', await view.run(() => location.pathname) === '/');
}

// The elements of the site that open the box.
async function triggers(view, url) {
  await view.page.goto(`${url}own.html`, { waitUntil: 'load' });
  await pause(QUIET_MS);
  promise('a page with a trigger gets no button', !(await view.box()).button);
  const opens = async (what) => {
    await eventually(`${what} opens the box`, () => view.box(), (box) => box.isOpen && box.hasFocus);
    const seen = await view.run(() => window.seen.join());
    promise(`${what} does not reach the handlers of the site`, seen === '', seen);
  };
  const closes = async (id) => {
    await view.press('Escape');
    await eventually(`Esc gives the focus back to #${id}`, async () => [
      (await view.box()).isOpen, await view.run(() => document.activeElement.id),
    ], ([isOpen, focused]) => !isOpen && focused === id);
  };
  await view.click('#search-bar-entry');
  await opens('a click on a trigger');
  await closes('search-bar-entry');
  for (const key of ['Enter', 'Space', '/']) {
    await view.press(key);
    await opens(`${key} while a trigger has the focus`);
    await closes('search-bar-entry');
  }
  await view.run(() => document.getElementById('own-field').focus());
  await view.press('h');
  await opens('a character in a field that is a trigger');
  await eventually('the character is in the box', () => view.box(), (box) => box.text === 'h');
  promise('the field of the site is empty', await view.run(() => document.getElementById('own-field').value) === '');
  await closes('own-field');
  await view.run(() => window.addLater());
  await view.click('.DocSearch-Button');
  await opens('a click on a trigger that appeared later');
  await view.press('Escape');
  await view.visit(url);
  await view.run(() => window.addLater());
  await eventually('the button goes when a trigger appears', () => view.box(), (box) => !box.button);
  await view.run(() => document.querySelector('.DocSearch-Button').remove());
  await eventually('the button comes back when the trigger goes', () => view.box(), (box) => box.button);
  view.wasQuiet();
}

async function once(view, url) {
  await view.visit(`${url}twice.html`);
  await pause(QUIET_MS);
  promise('a script that is loaded twice makes one box', (await view.box()).hosts === 1);
  await view.openBox('Control+k');
  await pause(QUIET_MS);
  promise('a key acts once', (await view.box()).isOpen);
  await view.visit(`${url}frame.html`);
  await pause(QUIET_MS);
  const inside = await view.run(() => {
    const { contentDocument } = document.querySelector('iframe');
    return ['h1', 'script[src$="search.js"]', 'docwharf-search']
      .map((selector) => contentDocument.querySelectorAll(selector).length).join();
  });
  promise('the script does nothing in a frame', inside === '1,1,0', inside);
  await view.click('iframe');
  await view.press('Control+k');
  await pause(QUIET_MS);
  promise('a key in the frame opens nothing', !(await view.box()).isOpen);
  view.wasQuiet();
}

// Text that an input method composes.
async function composition(view, url) {
  await view.visit(`${url}lang/ja.html`);
  await view.openBox('Control+k');
  const asked = view.questions.length;
  for (const text of ['k', 'け', 'けい', 'けいり', 'けいりゅう']) {
    const [selectionStart, selectionEnd] = [text.length, text.length];
    await view.session.send('Input.imeSetComposition', { text, selectionStart, selectionEnd });
  }
  await pause(QUIET_MS);
  const composed = await view.box();
  promise('composed text is in the input', composed.text === 'けいりゅう', composed);
  promise('composed text is not searched before it ends', view.questions.length === asked, view.questions.map(String));
  await view.inBox((root) => {
    const common = { keyCode: 229, isComposing: true, bubbles: true, composed: true, cancelable: true };
    for (const key of ['Enter', 'ArrowDown', 'Escape']) {
      root.querySelector('input').dispatchEvent(new KeyboardEvent('keydown', { key, ...common }));
    }
  });
  await pause(QUIET_MS);
  const isStill = (await view.box()).isOpen && view.questions.length === asked;
  promise('keys of the composition neither open, search nor close', isStill);
  await view.session.send('Input.insertText', { text: '係留' });
  const box = await eventually('the text is searched when its composition has ended', () => view.box(),
    (now) => now.text === '係留' && now.options.length > 0);
  promise('the result is in the language of the page', box.options[0].href.includes('/lang/ja'), box);
  view.wasQuiet();
}

async function lateAnswers(view, url) {
  await view.visit(url);
  let isLate = false;
  await view.page.route(isQuestion, async (route) => {
    const isOld = new URL(route.request().url()).searchParams.get('q') === 'bollard';
    if (isOld) await pause(2000);
    // The box may have given up the request.
    await route.continue().catch(() => {});
    isLate = isLate || isOld;
  });
  await view.openBox('Control+k');
  await view.type('bollard');
  await eventually('the first text is asked for', async () => view.questions.map((one) => one.get('q')),
    (all) => all.includes('bollard'));
  const newer = await view.search('hawser');
  await eventually('its answer is late', async () => isLate, Boolean);
  await pause(QUIET_MS);
  const now = await view.box();
  const isSame = JSON.stringify([now.options, now.status]) === JSON.stringify([newer.options, newer.status]);
  promise('a late answer does not replace a newer one', isSame, now);
  await view.page.unroute(isQuestion);
  view.wasQuiet();
}

// What the box tells about answers that are not as usual.
async function words(view, url) {
  const { answer } = await ask(url, 'hawser');
  const json = (content, status = 200, headers = {}) => (
    { status, headers, contentType: 'application/json', body: JSON.stringify(content) }
  );
  await view.visit(url);
  await view.openBox('Control+k');
  for (const [text, response, expected] of [
    ['indexing', json({ ...answer, indexing: true }), /A new version is being indexed/],
    ['partial', json({ ...answer, partial: true }), /took too long/],
    ['corrected', json({ ...answer, corrected: 'hawsers' }), /Results for “hawsers”/],
    ['nothing', json({ ...answer, total: 0, results: [] }), /No results for “nothing”/],
    ['building', json({ indexing: true }, 503, { 'Retry-After': '2' }), /index is being built/],
    ['failed', json({ indexing: false, error: 'no index' }, 503), /did not answer/],
    ['broken', { status: 200, contentType: 'application/json', body: '{"' }, /did not answer/],
    ['foreign', json({ a: 1 }), /did not answer/],
  ]) {
    await view.page.route(isQuestion, (route) => route.fulfill(response));
    await view.press('Control+a');
    await view.type(text);
    const isTold = ({ status, link }) => expected.test(status) && link && isQuestion(link)
      && new URL(link).searchParams.get('q') === text;
    await eventually(`an answer that is ${text} is told in words, with a link to the page`, () => view.box(), isTold);
    await view.page.unroute(isQuestion);
  }
  const back = await view.search('hawser');
  promise('the box works after failures', /^Results: /.test(back.status), back.status);
  view.errors = view.errors.filter((line) => !/status of 503/.test(line));
  view.wasQuiet();
}

async function languages(view, url) {
  for (const [lang, word] of Object.entries(LANGUAGES)) {
    await view.visit(`${url}lang/${lang}.html`);
    const { placeholder, button } = await view.box();
    const isTranslated = placeholder === word && button.includes(word);
    promise(`${lang}: the box is in the language of the page`, isTranslated, [placeholder, button]);
    await view.openBox('/');
    const { options } = await view.search('hawser');
    const asked = view.questions.at(-1);
    promise(`${lang}: the language is asked for`, asked.get('lang') === lang, String(asked));
    const isFound = lang === 'en' || options[0].href.includes(`/lang/${lang}`);
    promise(`${lang}: pages in that language are found`, isFound, options);
  }
  view.wasQuiet();
}

// A page whose texts are markup.
async function hostile(view, url) {
  await view.visit(url);
  await view.openBox('Control+k');
  const { options } = await view.search('capstan');
  const all = options.map((option) => option.text).join('\n');
  promise('markup of a page is text in the box', all.includes('<img src=x') && all.includes('<script>'), all);
  promise('the box has no invisible characters', !/[\u0001-\u0008\u200b\u202a-\u202e\u2066-\u2069]/.test(all), all);
  const inner = await view.inBox((root) => [...new Set(
    [...root.querySelectorAll('[role=listbox] *')].map((one) => one.nodeName),
  )].sort().join());
  promise('no other element comes into the box', inner === 'A,MARK,SPAN', inner);
  const typed = '<img src=x onerror="window.hacked=1">"\'>&lt;';
  await view.press('Control+a');
  await view.type(typed);
  await eventually('what was typed is searched', async () => view.questions.at(-1).get('q'), (text) => text === typed);
  await pause(QUIET_MS);
  const { status } = await view.box();
  promise('what was typed is answered', /^(No results for|Results)/.test(status), status);
  for (const text of ['capstan', typed]) {
    const target = `${url}_docwharf/search?q=${encodeURIComponent(text)}&lang=en`;
    await view.page.goto(target, { waitUntil: 'load' });
    const elements = await view.run(() => document.querySelectorAll('script, img, style, iframe, [onerror]').length);
    const shown = await view.run(() => document.body.innerText + document.querySelector('#q').value);
    promise('markup is text in the page of results', elements === 0 && shown.includes('<img src=x'), [elements, shown]);
  }
  promise('no script of the texts has run', await view.run(() => window.hacked === undefined));
  view.wasQuiet();
}

module.exports = { parts: [structure, keys, triggers, once, composition, lateAnswers, words, languages, hostile] };

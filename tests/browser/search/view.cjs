// What the parts of search.cjs share: promises, servers, and pages of the browser with the search box.

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const WAIT_MS = 20000;
const READY_MS = 120000;
const INDEX_MS = 300000;
// The time in which nothing more happens that has begun before.
const QUIET_MS = 800;

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// ---- Promises ----

let section = '';
let kept = 0;

function promise(name, isKept, found = '') {
  if (!isKept) {
    const text = typeof found === 'string' ? found : JSON.stringify(found);
    throw new Error(`FAILED ${section}: ${name}${text && `\n   found: ${text.slice(0, 2000)}`}`);
  }
  kept += 1;
}

// Reads a value until it is as promised. While another page comes into its place, a page cannot be read.
async function eventually(name, read, isKept, timeout = WAIT_MS) {
  const end = Date.now() + timeout;
  let found;
  do {
    try {
      found = await read();
      if (isKept(found)) {
        kept += 1;
        return found;
      }
    } catch (error) {
      found = String(error);
    }
    await pause(50);
  } while (Date.now() < end);
  return promise(name, false, found);
}

// Runs a part. Its first broken promise is an error.
async function part(name, work) {
  section = name;
  kept = 0;
  const began = Date.now();
  try {
    await work();
  } catch (error) {
    throw error.message.startsWith('FAILED') ? error : new Error(`FAILED ${section}: ${error.stack}`);
  }
  console.log(`ok ${name}: ${kept} promises in ${Math.round((Date.now() - began) / 1000)} s`);
}

// ---- Servers ----

const children = new Set();

// Starts docwharf. Resolves to the address of the site with its last slash, when docwharf is ready.
function start(docwharf, args, isReady) {
  const child = spawn(docwharf, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  children.add(child);
  const said = { out: '', err: '' };
  const ended = new Promise((done) => child.on('exit', done)).finally(() => children.delete(child));
  const stop = () => {
    child.kill('SIGINT');
    return ended;
  };
  return new Promise((resolve, reject) => {
    const fail = (why) => reject(new Error(`docwharf ${args.join(' ')} ${why}: ${said.err}`));
    const timer = setTimeout(fail, READY_MS, 'is not ready');
    const look = () => {
      const url = said.out.match(/http:\/\/\S+/);
      if (!url || !isReady(said)) return;
      clearTimeout(timer);
      resolve({ url: url[0].replace(/\/*$/, '/'), stop });
    };
    child.on('error', (error) => fail(String(error)));
    child.stdout.on('data', (data) => { said.out += data; look(); });
    child.stderr.on('data', (data) => { said.err += data; look(); });
    ended.then((code) => { clearTimeout(timer); fail(`ended with ${code}`); });
  });
}

// Serves a folder or an archive with the box in its pages, also if it brings an index of its own.
function serve(docwharf, site, preset, more = []) {
  const args = ['serve', site, '--listen', '127.0.0.1:0', '--csp', preset, '--search-box', 'always', ...more];
  return start(docwharf, args, (said) => preset === 'off' || said.err.includes('the longest policy has'));
}

function endServers() {
  for (const child of children) child.kill('SIGKILL');
}

async function ask(url, text) {
  const address = `${url}_docwharf/search?q=${encodeURIComponent(text)}`;
  const response = await fetch(address, { headers: { Accept: 'application/json' } });
  return { status: response.status, answer: await response.json() };
}

const waitForIndex = (url, text) => eventually('the first search builds the index', () => ask(url, text),
  ({ status }) => status === 200, INDEX_MS);

// ---- Pages ----

const isQuestion = (url) => new URL(url).pathname.endsWith('/_docwharf/search');

// The path of a page whatever form its address has.
const withoutForm = (pathname) => decodeURIComponent(pathname).replace(/(\/index)?(\.html)?\/?$/, '');

// A page of the browser, and what happens in it. Functions run in the page through the protocol of the developer tools:
// they do not depend on the policy of the page, and leave nothing in it.
class View {
  static async open(browser, options = {}) {
    const view = new View();
    view.context = await browser.newContext({ viewport: { width: 1100, height: 800 }, ...options });
    await view.context.addInitScript(() => {
      addEventListener('securitypolicyviolation', ({ effectiveDirective, blockedURI, sourceFile }) => {
        console.error(`violated policy: ${effectiveDirective} ${blockedURI} ${sourceFile}`);
      }, true);
    });
    view.page = await view.context.newPage();
    view.session = await view.context.newCDPSession(view.page);
    view.violations = [];
    view.errors = [];
    view.questions = [];
    view.outside = [];
    view.listen();
    return view;
  }

  listen() {
    this.page.on('console', (message) => {
      const line = `${message.text()} (${message.location().url})`;
      if (/polic(y|ies)|trusted ?(type|script|html)/i.test(message.text())) this.violations.push(line);
      else if (message.type() === 'error') this.errors.push(line);
    });
    this.page.on('pageerror', (error) => this.errors.push(String(error)));
    this.page.on('dialog', (dialog) => {
      this.errors.push('a dialog');
      dialog.dismiss();
    });
    this.page.on('request', (request) => {
      const url = new URL(request.url());
      if (isQuestion(url)) this.questions.push(url.searchParams);
      if (/^https?:$/.test(url.protocol) && url.hostname !== '127.0.0.1') this.outside.push(url.href);
    });
  }

  // Calls a function in the page and returns its result.
  async run(work, ...values) {
    const expression = `(${work})(...${JSON.stringify(values)})`;
    const parameters = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await this.session.send('Runtime.evaluate', parameters);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
    return result.value;
  }

  // Calls a function with the shadow root of the box.
  inBox(work) {
    return this.run(`() => (${work})(document.querySelector('docwharf-search').shadowRoot)`);
  }

  press(key) {
    return this.page.keyboard.press(key);
  }

  type(text) {
    return this.page.keyboard.type(text);
  }

  async click(selector) {
    const [x, y] = await this.run((one) => {
      const { left, top, width, height } = document.querySelector(one).getBoundingClientRect();
      return [left + width / 2, top + height / 2];
    }, selector);
    await this.page.mouse.click(x, y);
  }

  async screenshot(folder, name) {
    // The box appears in 120 ms.
    await pause(300);
    const { data } = await this.session.send('Page.captureScreenshot', { format: 'png' });
    fs.writeFileSync(path.join(folder, `search-${name}.png`), Buffer.from(data, 'base64'));
  }

  // Goes to a page and waits for the button of the box.
  async visit(url) {
    await this.page.goto(url, { waitUntil: 'load' });
    return eventually('a page without a trigger gets one box and its button', () => this.box(),
      (box) => box.hosts === 1 && box.button);
  }

  // What the box shows.
  box() {
    return this.run(() => {
      const hosts = document.querySelectorAll('docwharf-search');
      const root = hosts[0]?.shadowRoot;
      if (!root) return { hosts: hosts.length, isOpen: false, button: '' };
      const find = (selector) => root.querySelector(selector);
      const [input, dialog, link, button] = [find('input'), find('dialog'), find('a.page'), find('button.open')];
      const options = [...root.querySelectorAll('[role=option]')];
      const isSelected = (option) => option.getAttribute('aria-selected') === 'true';
      return {
        hosts: hosts.length,
        isOpen: dialog.open && dialog.matches(':modal'),
        hasFocus: document.activeElement === hosts[0] && root.activeElement === input,
        text: input.value,
        placeholder: input.placeholder,
        isExpanded: input.getAttribute('aria-expanded'),
        active: input.getAttribute('aria-activedescendant'),
        selected: options.filter(isSelected).map((option) => option.id).join(),
        options: options.map((option) => ({ href: option.href, text: option.textContent })),
        status: find('[role=status]').textContent,
        link: link.hidden ? '' : link.href,
        button: button.checkVisibility() ? button.textContent : '',
        isDark: find('.box').classList.contains('dark'),
      };
    });
  }

  async openBox(key) {
    await this.press(key);
    return eventually(`${key} opens a modal box with the focus in its input`, () => this.box(),
      (box) => box.isOpen && box.hasFocus);
  }

  // Types a text in the place of the one in the input, and waits for its results.
  async search(text) {
    // 304 is the answer from the cache of the browser.
    const isAnswer = (response) => isQuestion(response.url()) && [200, 304].includes(response.status())
      && new URL(response.url()).searchParams.get('q') === text;
    await this.press('Control+a');
    const answer = this.page.waitForResponse(isAnswer, { timeout: WAIT_MS }).then(() => true, () => false);
    await this.type(text);
    promise(`typing ${text} searches for it`, await answer);
    // The box shows an answer as soon as it has read it.
    await pause(150);
    return eventually(`there are results for ${text}`, () => this.box(),
      (box) => box.text === text && box.options.length > 0 && box.status);
  }

  async landsOn(href) {
    const expected = withoutForm(new URL(href).pathname);
    await eventually(`Enter opens ${expected || '/'}`, () => this.run(() => location.pathname),
      (now) => withoutForm(now) === expected);
  }

  // In a site of others, only what concerns the box is ours.
  wasQuiet(isOurSite = true) {
    const violations = this.violations.filter((line) => isOurSite || line.includes('_docwharf'));
    promise('no policy was violated', violations.length === 0, violations);
    promise('no script has failed', !isOurSite || this.errors.length === 0, this.errors);
    promise('no other origin was asked', !isOurSite || this.outside.length === 0, this.outside);
  }

  close() {
    return this.context.close();
  }
}

// Opens the box in any site, searches, and opens the first result, all by keyboard.
async function useByKeyboard(view, url, text) {
  await view.visit(url);
  const focusLink = () => [...document.querySelectorAll('a[href]')].some((link) => {
    link.focus();
    window.before = link;
    return document.activeElement === link;
  });
  promise('a link of the page has the focus', await view.run(focusLink));
  await view.openBox('Control+k');
  const first = await view.search(text);
  promise('the first result is active', first.active === 'option-0' && first.isExpanded === 'true', first);
  await view.press('ArrowDown');
  const second = await view.box();
  const next = `option-${Math.min(1, first.options.length - 1)}`;
  const isMoved = second.active === next && second.selected === next && second.hasFocus;
  promise('ArrowDown moves to the next result', isMoved, second);
  await view.press('Escape');
  await eventually('Esc closes the box and gives the focus back', async () => [
    (await view.box()).isOpen, await view.run(() => document.activeElement === window.before),
  ], ([isOpen, hasFocus]) => !isOpen && hasFocus);
  const again = await view.openBox('/');
  promise('the box keeps what was typed', again.text === text, again);
  const { options } = await view.search(text);
  await view.press('Enter');
  await view.landsOn(options[0].href);
  await eventually('the next page has one box, which is closed', () => view.box(),
    (box) => box.hosts === 1 && !box.isOpen && box.button);
}

module.exports = {
  INDEX_MS, QUIET_MS, View, WAIT_MS, ask, endServers, eventually, isQuestion, part, pause, promise, serve, start,
  useByKeyboard, waitForIndex, withoutForm,
};

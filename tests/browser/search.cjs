// Chromium uses the search as readers do: the box by keyboard, the page without scripts, under each content security
// policy, in a site of tests (search/site.cjs), the demo, a book of mdBook, Python's documentation, exports of Next.js.
//
// node search.cjs DOCWHARF CORPUS EXPORTS SCREENS; EXPORTS is as for tests/next/walk.cjs. Needs playwright-core and a
// system Chromium; `.ci/extra searchbox` calls it without a network. The first broken promise ends it with 1.

const { chromium } = require('playwright-core');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { parts } = require('./search/box.cjs');
const { eventParts, nextViews } = require('./search/events.cjs');
const { BOLLARDS, LOOKS, writeSite } = require('./search/site.cjs');
const {
  INDEX_MS, QUIET_MS, View, endServers, eventually, isQuestion, part, pause, promise, serve, start, useByKeyboard,
  waitForIndex, withoutForm,
} = require('./search/view.cjs');

const [docwharf, corpus, exports_, screens] = process.argv.slice(2).map((p) => path.resolve(p));
const PRESETS = ['off', 'report', 'connected', 'airgap'];
// The links in the navigation of tests/next/app/layout.jsx.
const NEXT_PAGES = ['Home', 'Guides', 'Start', 'Deeper', 'One', 'Two', 'Edition'];

// ---- The site of tests ----

// The first search waits for its index, which is told; then the server is gone.
async function states(browser, site) {
  const server = await serve(docwharf, site, 'off');
  const view = await View.open(browser);
  await view.visit(server.url);
  await view.openBox('Control+k');
  await view.type('hawser');
  await eventually('the first search tells that the index is being built, with a link to the page', () => view.box(),
    ({ status, link }) => /index is being built/.test(status) && link && isQuestion(link));
  await view.screenshot(screens, 'building');
  await eventually('the results come by themselves', () => view.box(), (box) => box.options.length > 0, INDEX_MS);
  await server.stop();
  await view.press('Control+a');
  await view.type('bollard');
  const gone = await eventually('a server that is gone is told in words, with a link to the page', () => view.box(),
    ({ status, link }) => status === 'The search did not answer.' && new URL(link).searchParams.get('q') === 'bollard');
  promise('no older results are shown', gone.options.length === 0, gone);
  await view.screenshot(screens, 'gone');
  promise('no policy was violated', view.violations.length === 0, view.violations);
  await view.close();
}

async function looks(browser, url) {
  for (const [name, { colorScheme, isDark }] of Object.entries(LOOKS)) {
    const view = await View.open(browser, { colorScheme });
    await view.visit(`${url}look/${name}.html`);
    await view.openBox('Control+k');
    const box = await view.search('hawser');
    promise(`${name}: the box is ${isDark ? 'dark' : 'light'}`, box.isDark === isDark, box);
    await view.screenshot(screens, `look-${name}`);
    view.wasQuiet();
    await view.close();
  }
  const view = await View.open(browser);
  await view.visit(url);
  await view.run(() => document.documentElement.classList.add('dark'));
  await eventually('the box follows a change of the theme', () => view.box(), (box) => box.isDark);
  await view.close();
}

// Opens the box in a page for a reader with these settings.
async function openFor(browser, options, url, name) {
  const view = await View.open(browser, options);
  await view.visit(url);
  await view.screenshot(screens, `${name}-button`);
  await view.openBox('Control+k');
  await view.search('hawser');
  await view.press('ArrowDown');
  await view.screenshot(screens, name);
  view.wasQuiet();
  return view;
}

async function preferences(browser, url) {
  const page = `${url}anchors.html`;
  const forced = await openFor(browser, { forcedColors: 'active' }, page, 'forced-colors');
  const [isForced, chosen, other] = await forced.inBox((root) => [
    matchMedia('(forced-colors: active)').matches,
    getComputedStyle(root.querySelector('[aria-selected=true]')).backgroundColor,
    getComputedStyle(root.querySelector('[aria-selected=false]')).backgroundColor,
  ]);
  promise('in forced colours, the active result differs', isForced && chosen !== other, [isForced, chosen, other]);
  await forced.close();

  for (const [reducedMotion, expected] of [['reduce', 'none'], ['no-preference', 'appear']]) {
    const view = await openFor(browser, { reducedMotion }, page, `motion-${reducedMotion}`);
    const animation = await view.inBox((root) => getComputedStyle(root.querySelector('dialog')).animationName);
    promise(`with the preference ${reducedMotion}, the animation is ${expected}`, animation === expected, animation);
    await view.close();
  }

  const rtl = await openFor(browser, {}, `${url}rtl.html`, 'rtl');
  const [direction, closeAt, inputAt] = await rtl.inBox((root) => [
    getComputedStyle(root.querySelector('dialog')).direction,
    root.querySelector('.close').getBoundingClientRect().left,
    root.querySelector('input').getBoundingClientRect().left,
  ]);
  const isMirrored = direction === 'rtl' && closeAt < inputAt;
  promise('from right to left, the box is mirrored', isMirrored, [direction, closeAt, inputAt]);
  await rtl.close();

  const small = await openFor(browser, { viewport: { width: 320, height: 568 }, deviceScaleFactor: 2 }, page, '320px');
  const [left, right, wide] = await small.inBox((root) => {
    const { left, right } = root.querySelector('dialog').getBoundingClientRect();
    const parts = [...root.querySelectorAll('dialog, .panel, .bar, .words, #list, #list a')];
    const isWide = (one) => one.scrollWidth > one.clientWidth + 1;
    return [left, right, parts.filter(isWide).map((one) => one.className || one.id || one.nodeName)];
  });
  promise('the box fits into 320 px', left >= 0 && right <= 320 && wide.length === 0, [left, right, wide]);
  await small.close();
}

async function fragments(browser, url) {
  const view = await View.open(browser);
  await view.visit(`${url}anchors.html`);
  await view.openBox('Control+k');
  const known = (await view.search('hemp')).options[0].href;
  promise('a link names the section and its first match', /#hawser:~:text=.*hemp/.test(known), known);
  await view.press('Enter');
  await eventually('the link leads to the section', () => view.run(() => location.hash), (hash) => hash === '#hawser');
  await eventually('the box is closed', () => view.box(), (box) => !box.isOpen);
  view.wasQuiet();
  await view.close();
  const old = await View.open(browser);
  await old.context.addInitScript(() => { delete Document.prototype.fragmentDirective; });
  await old.visit(`${url}anchors.html`);
  await old.openBox('Control+k');
  const unknown = (await old.search('hemp')).options[0].href;
  promise('a browser that knows no text fragments gets the section', unknown.endsWith('#hawser'), unknown);
  await old.close();
}

// ---- The page, without scripts ----

async function pageWithoutScripts(browser, url) {
  const view = await View.open(browser, { javaScriptEnabled: false });
  const { page } = view;
  const loaded = [];
  page.on('response', (response) => loaded.push(`${response.status()} ${new URL(response.url()).pathname}`));
  await page.goto(`${url}_docwharf/search?section=/quay&lang=en`, { waitUntil: 'load' });
  promise('the page has its style sheet', loaded.includes('200 /_docwharf/page.css'), loaded);
  await view.screenshot(screens, 'page-empty');
  await page.fill('#q', 'bollard');
  await page.press('#q', 'Enter');
  await page.waitForURL((now) => now.searchParams.get('q') === 'bollard');
  const count = (selector) => page.locator(selector).count();
  const keepsChoice = (what) => {
    const { searchParams } = new URL(page.url());
    const isKept = searchParams.get('section') === '/quay' && searchParams.get('lang') === 'en';
    promise(`${what} keeps section and language`, isKept, page.url());
  };
  keepsChoice('the form');
  promise('the page has ten results', await count('ol.results > li') === 10);
  promise('matches are marked', await count('ol.results mark') > 0);
  promise('the page tells the number of results',
    (await page.locator('main').textContent()).includes(`Results: ${BOLLARDS}.`));
  const html = [await page.getAttribute('html', 'lang'), await page.getAttribute('html', 'dir')].join();
  promise('the page has language and direction', html === 'en,ltr', html);
  await view.screenshot(screens, 'page');
  await page.click('nav a[rel=next]');
  await page.waitForURL((now) => now.searchParams.get('offset') === '10');
  const start = await page.getAttribute('ol.results', 'start');
  promise('the next page has the others', await count('ol.results > li') === BOLLARDS - 10 && start === '11', start);
  keepsChoice('the link to the next page');
  await page.click('nav a[rel=prev]');
  await page.waitForURL((now) => !now.searchParams.has('offset'));
  keepsChoice('the link to the previous page');
  const result = page.locator('ol.results > li h2 a').first();
  const expected = withoutForm(new URL(await result.getAttribute('href'), url).pathname);
  await result.click();
  await page.waitForURL((now) => withoutForm(now.pathname) === expected);
  await page.goto(`${url}_docwharf/search?q=hawser&lang=ar`, { waitUntil: 'load' });
  promise('Arabic is written from right to left', await page.getAttribute('html', 'dir') === 'rtl');
  await view.screenshot(screens, 'page-rtl');
  const description = new URL(await page.getAttribute('link[rel=search]', 'href'), page.url()).href;
  const xml = await (await page.request.get(description)).text();
  promise('opensearch.xml is linked and describes the page',
    xml.includes(`template="${url}_docwharf/search?q={searchTerms}"`), xml);
  promise('the page violates no policy', view.violations.length === 0, view.violations);
  await view.close();
}

async function pageLooks(browser, url) {
  for (const [name, options] of [
    ['light', {}],
    ['dark', { colorScheme: 'dark' }],
    ['forced-colors', { forcedColors: 'active' }],
    ['320px', { viewport: { width: 320, height: 568 }, deviceScaleFactor: 2 }],
  ]) {
    const view = await View.open(browser, options);
    await view.page.goto(`${url}_docwharf/search?q=bollard&lang=de`, { waitUntil: 'load' });
    const width = await view.run(() => document.documentElement.scrollWidth - innerWidth);
    promise(`${name}: the page is not wider than the window`, width <= 0, String(width));
    await view.screenshot(screens, `page-${name}`);
    promise(`${name}: the page violates no policy`, view.violations.length === 0, view.violations);
    await view.close();
  }
}

// ---- Next.js ----

// Before React hydrates the page, the box is opened.
async function openBeforeHydration(view, url) {
  const chunks = /\/_next\/static\/.*\.js/;
  await view.page.route(chunks, async (route) => {
    await pause(1500);
    await route.continue().catch(() => {});
  });
  await view.page.goto(url, { waitUntil: 'domcontentloaded' });
  await view.openBox('Control+k');
  await view.page.waitForLoadState('networkidle');
  await pause(QUIET_MS);
  const box = await view.box();
  promise('a box that was opened before the hydration stays open', box.hosts === 1 && box.isOpen, box);
  await view.press('Escape');
  await view.page.unroute(chunks);
}

async function nextSite(browser, kind, base, preset) {
  const more = base ? ['--base-path', base] : [];
  const server = await serve(docwharf, path.join(exports_, kind, '1'), preset, more);
  const url = new URL(`${base}/`, server.url).href;
  await waitForIndex(url, 'deeper');
  const view = await View.open(browser);
  const walkTo = async (name) => {
    await view.click(`nav a:nth-of-type(${NEXT_PAGES.indexOf(name) + 1})`);
    await eventually(`a click leads to ${name}`, () => view.run(() => document.querySelector('h1')?.textContent),
      (title) => title === name);
    await eventually(`${name}: it is the same document with the same box`, async () => [
      await view.run(() => window.walked && window.walked === document.querySelector('docwharf-search')),
      (await view.box()).hosts,
    ], ([isSame, hosts]) => isSame && hosts === 1);
  };
  const mark = () => view.run(() => { window.walked = document.querySelector('docwharf-search'); });
  await openBeforeHydration(view, url);
  await view.visit(url);
  await view.page.waitForLoadState('networkidle');
  await mark();
  for (const name of ['Guides', 'Start', 'Two', 'Edition', 'Home']) await walkTo(name);
  await view.openBox('Control+k');
  await view.search('deeper');
  await view.press('Escape');
  await walkTo('One');
  promise('the button is still there', (await view.box()).button);
  // The prefetches of the last page are done.
  await pause(QUIET_MS);
  await view.openBox('/');
  const { options } = await view.search('deeper');
  await view.press('Enter');
  await view.landsOn(options[0].href);
  await view.page.waitForLoadState('networkidle');
  await eventually('the page of the result has a button', () => view.box(), (box) => box.button);
  await mark();
  await walkTo('Guides');
  view.wasQuiet();
  if (preset === 'airgap') await view.screenshot(screens, `next-${kind}`);
  await view.close();
  await server.stop();
}

// ---- Other sites ----

async function realSite(browser, name, site, text, preset) {
  const server = await serve(docwharf, site, preset);
  await waitForIndex(server.url, text);
  const view = await View.open(browser);
  await useByKeyboard(view, server.url, text);
  if (preset === 'airgap') {
    await view.openBox('Control+k');
    await view.search(text);
    await view.screenshot(screens, name);
    await view.press('Escape');
  }
  if (name === 'book') await followsBook(view);
  view.wasQuiet(name === 'demo');
  await view.close();
  await server.stop();
}

// mdBook has a search and themes of its own.
async function followsBook(view) {
  await view.openBox('/');
  const isHidden = await view.run(() => !document.querySelector('#search-wrapper')?.checkVisibility());
  promise('the book does not open its own search', isHidden);
  await view.press('Escape');
  await view.run(() => {
    document.documentElement.classList.remove('light');
    document.documentElement.classList.add('navy');
  });
  await eventually('the box follows the dark theme of the book', () => view.box(), (box) => box.isDark);
}

async function demo(browser) {
  const server = await start(docwharf, ['demo'], (said) => said.err.includes('is active'));
  await waitForIndex(server.url, 'configuration');
  const view = await View.open(browser);
  await useByKeyboard(view, server.url, 'air gap');
  view.wasQuiet();
  await view.close();
  promise('the demo ends with 0', await server.stop() === 0);
}

// ---- Everything ----

async function ownSite(browser, dir) {
  const plain = writeSite(path.join(dir, 'plain'), false);
  const strict = writeSite(path.join(dir, 'strict'), true);
  await part('states', () => states(browser, plain));
  for (const [name, site, preset] of [
    ...PRESETS.map((one) => [one, plain, one]),
    ['own policy', strict, 'off'],
    ['airgap and own policy', strict, 'airgap'],
  ]) {
    const server = await serve(docwharf, site, preset);
    await part(`site of tests, ${name}`, async () => {
      await waitForIndex(server.url, 'hawser');
      const view = await View.open(browser);
      await useByKeyboard(view, server.url, 'hawser');
      view.wasQuiet();
      await view.close();
    });
    await server.stop();
  }
  const { url, stop } = await serve(docwharf, strict, 'off');
  await part('site of tests, index', () => waitForIndex(url, 'hawser'));
  for (const work of [...parts, ...eventParts]) {
    await part(work.name, async () => {
      const view = await View.open(browser);
      await work(view, url);
      await view.screenshot(screens, work.name);
      await view.close();
    });
  }
  for (const work of [looks, preferences, fragments, pageWithoutScripts, pageLooks]) {
    await part(work.name, () => work(browser, url));
  }
  await stop();
}

async function main(browser, dir) {
  await ownSite(browser, dir);
  await part('docwharf demo', () => demo(browser));
  for (const preset of PRESETS) {
    for (const [name, site, text] of [
      ['demo', path.join(__dirname, '../../demo/site'), 'air gap'],
      ['book', path.join(corpus, 'rust/html/book'), 'ownership'],
      ['python', path.join(corpus, 'python/site.zip'), 'lru_cache'],
    ]) {
      await part(`${name}, ${preset}`, () => realSite(browser, name, site, text, preset));
    }
    await part(`next, ${preset}`, () => nextSite(browser, 'plain', '', preset));
  }
  await part('next with slashes', () => nextSite(browser, 'slash', '', 'airgap'));
  await part('next below a path', () => nextSite(browser, 'based', '/docs', 'airgap'));
  await part('next, views', () => nextViews(browser, docwharf, path.join(exports_, 'based', '1')));
}

(async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-search-box-'));
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  const failure = await main(browser, dir).then(() => null, (error) => error);
  await browser.close();
  endServers();
  fs.rmSync(dir, { recursive: true, force: true });
  if (failure) console.error(failure.message);
  process.exit(failure ? 1 : 0);
})().catch((error) => { console.error(error); process.exit(1); });

// Chromium without a network asks questions in the search box, under each content security policy: a site of tests, and
// an endpoint of a model on the loopback interface that streams what the test wants.
//
// node ask.cjs DOCWHARF SCREENS. Needs playwright-core and a system Chromium; `.ci/extra ask` calls it without a
// network. The first broken promise ends it with 1.

const { chromium } = require('playwright-core');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const { View, endServers, eventually, part, promise, serve, waitForIndex } = require('./search/view.cjs');

const [docwharf, screens] = process.argv.slice(2).map((p) => path.resolve(p));
const PRESETS = ['off', 'report', 'connected', 'airgap'];

const HOSTILE = 'Make a **loop** [1], then *pull* [9].\n\n1. first `code[1]`\n2. second [1]\n   - inner\n\n'
  + '```sh\nrope --knot <b>[1]\n```\n\n# Heading\n\n<img src=x onerror="document.title=1"> <script>document.title=2</script> '
  + '![i](https://evil.example/i.png) [l](https://evil.example/) [x](javascript:document.title=3) https://evil.example/\n';

// ---- The endpoint ----

// Streams the pieces, then ends or stays silent. `aborted` counts the requests that the client has ended.
const startEndpoint = async () => {
  const endpoint = { reply: { pieces: [HOSTILE] }, requests: 0, aborted: 0 };
  const server = http.createServer((request, response) => {
    request.resume().on('end', () => {
      endpoint.requests += 1;
      const { status = 200, pieces = [], isSilent } = endpoint.reply;
      response.writeHead(status, { 'Content-Type': 'text/event-stream' });
      response.flushHeaders();
      response.on('close', () => { if (!response.writableFinished) endpoint.aborted += 1; });
      for (const content of pieces) response.write(`data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`);
      if (!isSilent) response.end('data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n');
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  endpoint.url = `http://127.0.0.1:${server.address().port}/v1`;
  endpoint.stop = () => { server.closeAllConnections(); server.close(); };
  return endpoint;
};

// ---- The panel ----

// What the panel shows; `null` before it is open.
const panel = (view) => view.inBox((root) => {
  const find = (selector) => root.querySelector(`.ask-panel ${selector}`);
  const element = root.querySelector('.ask-panel');
  if (!element || !element.checkVisibility()) return null;
  const answer = find('.answer'), count = (selector) => answer.querySelectorAll(selector).length;
  const links = (where) => [...where.querySelectorAll('a')].map((a) => [a.textContent, new URL(a.href).pathname + a.hash]);
  return {
    label: element.getAttribute('aria-label'),
    status: find('[role=status]').textContent,
    isBusy: answer.getAttribute('aria-busy'),
    text: answer.hidden ? '' : answer.textContent,
    counts: Object.fromEntries(['p', 'ol', 'ul', 'li', 'pre', 'code', 'strong', 'em', 'img', 'script', 'iframe']
      .map((name) => [name, count(name)])),
    links: links(answer),
    origins: [...element.querySelectorAll('a')].map((a) => new URL(a.href).origin),
    sources: find('.sources').hidden ? [] : links(find('.sources')),
    hasNote: !find('.note').hidden && find('.note').textContent.length > 20,
    canStop: find('.stop').checkVisibility(),
    question: find('textarea').value,
    hasFocus: root.activeElement === find('textarea'),
    focus: root.activeElement?.className || root.activeElement?.localName,
  };
});

const openPanel = async (view, text) => {
  await view.openBox('Control+k');
  await view.press('Control+a');
  await view.type(text);
  await view.inBox((root) => root.querySelector('button.ask').focus());
  await view.press('Enter');
};

const isOver = (shown) => shown && !shown.canStop && shown.status && !/answering/.test(shown.status);

async function answers(view, endpoint, url, name) {
  endpoint.reply = { pieces: HOSTILE.match(/[^]{1,7}/g) };
  await view.visit(url);
  const before = await view.run(() => performance.getEntriesByType('resource').map((entry) => entry.name).join());
  promise('the script of the panel is not loaded before it is opened', !before.includes('ask.'), before);
  await openPanel(view, 'How do I tie a bowline?');
  const shown = await eventually('the question is answered', () => panel(view), isOver);
  promise('the answer is complete', shown.status === 'The answer is complete.' && shown.isBusy === 'false', shown);
  promise('it has a note that a model wrote it', shown.hasNote, shown);
  const { counts } = shown;
  promise('text becomes paragraphs, lists, code and emphasis', counts.p >= 3 && counts.ol === 1 && counts.ul === 1
    && counts.li === 3 && counts.pre === 1 && counts.code === 2 && counts.strong >= 2 && counts.em === 1, counts);
  promise('there are no images and no scripts', counts.img + counts.script + counts.iframe === 0, counts);
  promise('markup stays text', ['<img src=x', '<script>', '![i](https://evil.example/i.png)', 'rope --knot <b>[1]']
    .every((text) => shown.text.includes(text)), shown.text);
  promise('an unknown number is removed', !shown.text.includes('[9]') && shown.text.includes('pull.'), shown.text);
  promise('each link is a citation', shown.links.length === 2 && shown.links.every(([text, to]) => text === '1'
    && to.startsWith('/ropes')), shown.links);
  const own = new URL(url).origin;
  promise('no link leaves the site', shown.origins.every((origin) => origin === own), shown.origins);
  promise('the sources are listed', shown.sources.length === 1 && shown.sources[0][0].startsWith('Ropes'), shown.sources);
  promise('no script of the model has run', !/^[123]$/.test(await view.run(() => document.title)));
  await view.screenshot(screens, `ask-${name}`);
  view.wasQuiet();
}

async function stopping(view, endpoint) {
  endpoint.reply = { pieces: ['First part [1]. '], isSilent: true };
  const { aborted } = endpoint;
  await view.inBox((root) => { root.querySelector('.ask-panel textarea').value = 'Another question about ropes?'; });
  await view.inBox((root) => root.querySelector('.ask-panel textarea').focus());
  await view.press('Enter');
  await eventually('text is shown as it arrives', () => panel(view), (shown) => shown.text.includes('First part'));
  promise('the answer is busy and can be stopped', (await panel(view)).canStop && (await panel(view)).isBusy === 'true');
  await view.press('Tab');
  promise('the stop button is next', (await panel(view)).focus === 'stop', await panel(view));
  await view.press('Enter');
  const stopped = await eventually('it is stopped', () => panel(view), (shown) => shown.status === 'Stopped.');
  promise('cited text stays, and the focus goes to the question', stopped.text.includes('First part [1]')
    && stopped.hasFocus, stopped);
  await eventually('the request to the endpoint was cancelled', () => endpoint.aborted, (now) => now === aborted + 1);
}

async function refusals(view, endpoint) {
  const ask = async (question, reply) => {
    endpoint.reply = reply;
    await view.inBox((root) => root.querySelector('.ask-panel textarea').focus());
    await view.press('Control+a');
    await view.type(question);
    await view.press('Enter');
    return eventually(`${question} has an end`, () => panel(view), isOver);
  };
  const { requests } = endpoint;
  const nothing = await ask('xyzzyplugh?', { pieces: ['never'] });
  promise('nothing is found', /has nothing about this/.test(nothing.status) && !nothing.text
    && endpoint.requests === requests, nothing);
  const uncited = await ask('A bowline?', { pieces: ['I just know it.'] });
  promise('an answer without citations is removed, and its passages are listed', /no answer that/.test(uncited.status)
    && !uncited.text && !uncited.hasNote && uncited.sources.length >= 2, uncited);
  const failed = await ask('A bowline now?', { status: 500 });
  promise('a failure is told', /could not be answered/.test(failed.status) && !failed.text, failed);
}

async function keyboard(view) {
  await view.press('Escape');
  await eventually('Escape closes the box', () => view.box(), (box) => !box.isOpen);
  await view.press('Control+k');
  await eventually('the panel is there again, with its question', () => panel(view),
    (shown) => shown?.hasFocus && shown.question);
  await view.press('Shift+Enter');
  promise('Shift+Enter begins a line', (await panel(view)).question.includes('\n'));
  await view.inBox((root) => root.querySelector('.ask-panel .back').focus());
  await view.press('Enter');
  await eventually('the search is there again', () => view.box(), (box) => box.hasFocus);
  promise('the panel is hidden', (await panel(view)) === null);
  const names = await view.session.send('Accessibility.getFullAXTree');
  const buttons = names.nodes.filter((node) => node.role?.value === 'button').map((node) => node.name?.value);
  promise('the button has a name', buttons.includes('Ask AI'), buttons);
  await view.press('Escape');
}

async function citations(view, endpoint, url) {
  endpoint.reply = { pieces: ['Loop [1].'] };
  await openPanel(view, 'How is a bowline tied?');
  await eventually('the question is answered', () => panel(view), (shown) => isOver(shown) && shown.links.length === 1);
  await view.inBox((root) => root.querySelector('.ask-panel .answer a').focus());
  await view.press('Enter');
  await eventually('a citation opens its page', () => view.run(() => location.href),
    (href) => href.startsWith(`${url}ropes`));
}

async function languages(browser, endpoint, url) {
  for (const [lang, label, question] of [['de', 'KI fragen', 'Ihre Frage'], ['ja', 'AI に質問', '質問']]) {
    const view = await View.open(browser);
    await view.page.goto(`${url}${lang}.html`, { waitUntil: 'load' });
    await view.openBox('Control+k');
    const name = await view.inBox((root) => root.querySelector('button.ask').textContent);
    promise(`${lang}: the button is translated`, name === label, name);
    endpoint.reply = { pieces: ['x [1]'] };
    await view.type('bowline');
    await view.inBox((root) => root.querySelector('button.ask').click());
    await eventually(`${lang}: the panel is translated`, () => view.inBox((root) =>
      root.querySelector('.ask-panel textarea')?.placeholder), (placeholder) => placeholder === question);
    view.wasQuiet();
    await view.close();
  }
}

(async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-ask-'));
  const site = path.join(folder, 'site');
  fs.mkdirSync(site);
  // Without it, the browser logs that it is missing.
  fs.writeFileSync(path.join(site, 'favicon.ico'), '');
  const page = (title, body, lang = 'en') => `<!doctype html><html lang=${lang}><title>${title}</title><h1>${title}</h1>${body}`;
  fs.writeFileSync(path.join(site, 'index.html'), page('Start', '<p>Welcome.'));
  fs.writeFileSync(path.join(site, 'ropes.html'), page('Ropes', '<p>All.<h2 id=bowline>The bowline</h2><p>Tie a bowline.'));
  fs.writeFileSync(path.join(site, 'tides.html'), page('Tides', '<p>A bowline is wet.'));
  for (const lang of ['de', 'ja']) fs.writeFileSync(path.join(site, `${lang}.html`), page('Seite', '<p>x', lang));
  const endpoint = await startEndpoint();
  const config = path.join(folder, 'config.toml');
  fs.writeFileSync(config, `[assistant]\nbaseUrl = "${endpoint.url}"\nmodel = "m"\nperMinute = 1000\n`);
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    for (const preset of PRESETS) {
      await part(`csp ${preset}`, async () => {
        const server = await serve(docwharf, site, preset, ['--config', config]);
        await waitForIndex(server.url, 'bowline');
        const view = await View.open(browser);
        await answers(view, endpoint, server.url, preset);
        await stopping(view, endpoint);
        await refusals(view, endpoint);
        await keyboard(view);
        await citations(view, endpoint, server.url);
        // A status of 502 is logged by the browser itself.
        const failures = view.errors.filter((line) => !line.includes('502'));
        promise('no script has failed', failures.length === 0, failures);
        promise('no policy was violated', view.violations.length === 0, view.violations);
        promise('no other origin was asked', view.outside.length === 0, view.outside);
        await view.close();
        await languages(browser, endpoint, server.url);
        await server.stop();
      });
    }
  } finally {
    endServers();
    endpoint.stop();
    await browser.close();
    fs.rmSync(folder, { recursive: true });
  }
})().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});

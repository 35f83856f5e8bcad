// The events that the search box sends to a host that records what readers do. `docwharf serve` does not record; so a
// proxy in front of it sets `events` in the settings of the box, and receives the events. Each part is a function that
// gets a new page of the browser and the address of the site.

const http = require('node:http');
const { isDeepStrictEqual } = require('node:util');
const { View, WAIT_MS, eventually, isQuestion, promise, serve, withoutForm } = require('./view.cjs');

// ---- The proxy ----

function forward(site, request, response) {
  const { method, url, headers } = request;
  const upstream = http.request(new URL(url, site), { method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  upstream.on('error', () => response.destroy());
  request.pipe(upstream);
}

async function sendScript(address, isOn, response) {
  const served = (await (await fetch(address)).text()).replace('"events":true,', '');
  const script = isOn ? served.replace('= {"button":', '= {"events":true,"button":') : served;
  response.writeHead(200, { 'Content-Type': 'text/javascript; charset=utf-8' });
  response.end(script);
}

async function takeBeacon(beacons, request, response) {
  let body = '';
  for await (const part of request.setEncoding('utf8')) body += part;
  beacons.push({ method: request.method, type: request.headers['content-type'], body });
  response.writeHead(204).end();
}

// Starts the proxy. Its beacons are in the order in which they were received.
async function record(site, isOn = true) {
  const beacons = [];
  const server = http.createServer((request, response) => {
    const { pathname } = new URL(request.url, site);
    const fail = () => response.destroy();
    if (pathname.endsWith('/_docwharf/events')) takeBeacon(beacons, request, response).catch(fail);
    else if (!pathname.endsWith('/_docwharf/search.js')) forward(site, request, response);
    else sendScript(new URL(request.url, site), isOn, response).catch(fail);
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const stop = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${server.address().port}${new URL(site).pathname}`, beacons, stop };
}

// ---- Comparison ----

// The events of each beacon. Ids are random: the first becomes 1, the next one 2.
function readBeacons(beacons) {
  const ids = [];
  const withNumber = (event) => {
    if (event.id === undefined) return event;
    if (!/^[0-9a-f]{16}$/.test(event.id)) throw new Error(`not an id: ${event.id}`);
    if (!ids.includes(event.id)) ids.push(event.id);
    return { ...event, id: ids.indexOf(event.id) + 1 };
  };
  return beacons.map(({ method, type, body }) => {
    if (method !== 'POST' || !/^text\/plain/.test(type)) throw new Error(`not a beacon: ${method} ${type}`);
    return JSON.parse(body).events.map(withNumber);
  });
}

const sends = (recorder, name, expected) => eventually(name, async () => readBeacons(recorder.beacons),
  (found) => isDeepStrictEqual(found, expected));

// Ends a part: the page sends one more beacon, and nothing else than expected was received before it.
async function sentNothingElse(view, recorder, expected) {
  await view.run((address) => navigator.sendBeacon(address, '{"events":[{"type":"end"}]}'),
    new URL('_docwharf/events', recorder.url).href);
  await sends(recorder, 'nothing else is sent', [...expected, [{ type: 'end' }]]);
  view.wasQuiet();
  recorder.stop();
}

// The answer that the box gets.
async function readAnswer(url, text) {
  const address = `${url}_docwharf/search?lang=en&q=${encodeURIComponent(text)}`;
  return (await fetch(address, { headers: { Accept: 'application/json' } })).json();
}

async function searchEvent(url, id, query) {
  return { type: 'search', id, query, results: (await readAnswer(url, query)).total };
}

const clickEvent = (id, href) => ({ type: 'click', id, page: new URL(href).pathname });

async function closes(view) {
  await view.press('Escape');
  await eventually('Esc closes the box', () => view.box(), (box) => !box.isOpen);
}

// ---- Searches ----

async function finishedSearches(view, site) {
  const recorder = await record(site), { url } = recorder;
  await view.visit(url);
  await view.openBox('Control+k');
  await view.type('hawser');
  const expected = [[await searchEvent(url, 1, 'hawser')]];
  await sends(recorder, 'a text that does not change for a second is one search, in its final form', expected);
  // The longer text is another search, because the first one was sent.
  await view.press('End');
  await view.type(' rope');
  expected.push([await searchEvent(url, 2, 'hawser rope')]);
  await sends(recorder, 'a text that is longer after a second is another search', expected);
  await view.search('hawser');
  await closes(view);
  await sentNothingElse(view, recorder, expected);
}

async function closedSearches(view, site) {
  const recorder = await record(site), { url } = recorder;
  await view.visit(url);
  const expected = [];
  for (const id of [1, 2]) {
    await view.openBox('Control+k');
    await view.search('hawser');
    await closes(view);
    expected.push([await searchEvent(url, id, 'hawser')]);
    await sends(recorder, 'a search is sent when the box closes, with an id of its own', expected);
  }
  // The text is still there, and its results are listed again.
  await view.openBox('Control+k');
  await eventually('the results are listed again', () => view.box(), (box) => box.options.length > 0);
  await closes(view);
  await view.openBox('Control+k');
  await view.search('bollard');
  await view.page.goto(`${url}anchors.html`, { waitUntil: 'load' });
  expected.push([await searchEvent(url, 3, 'bollard')]);
  await sends(recorder, 'a search is sent when the page is left', expected);
  await sentNothingElse(view, recorder, expected);
}

async function searchesWithoutResults(view, site) {
  const recorder = await record(site), { url } = recorder;
  await view.page.route(isQuestion, (route) => route.fulfill({ json: { total: 0, results: [] } }));
  await view.visit(url);
  await view.openBox('Control+k');
  await view.type('nowhere');
  await view.press('Enter');
  const expected = [[{ type: 'search', id: 1, query: 'nowhere', results: 0 }]];
  await sends(recorder, 'Enter finishes a search that has no results', expected);
  await closes(view);
  await sentNothingElse(view, recorder, expected);
}

async function composedSearches(view, site) {
  const recorder = await record(site), { url } = recorder;
  await view.page.goto(`${url}lang/ja.html`, { waitUntil: 'load' });
  await eventually('the page has a button', () => view.box(), (box) => box.button);
  await view.openBox('Control+k');
  for (const text of ['k', 'け', 'けい']) {
    const [selectionStart, selectionEnd] = [text.length, text.length];
    await view.session.send('Input.imeSetComposition', { text, selectionStart, selectionEnd });
  }
  await view.session.send('Input.insertText', { text: '係留' });
  const { status } = await eventually('the composed text is searched', () => view.box(),
    (box) => box.text === '係留' && box.options.length > 0);
  const expected = [[{ type: 'search', id: 1, query: '係留', results: Number(status.match(/\d+/)[0]) }]];
  await sends(recorder, 'composed text is one search', expected);
  await closes(view);
  await sentNothingElse(view, recorder, expected);
}

// ---- Clicks ----

async function openedAtOnce(view, site) {
  const recorder = await record(site), { url } = recorder;
  await view.visit(url);
  const [first] = (await readAnswer(url, 'tackle')).results;
  const href = new URL(first.url, `${url}_docwharf/`).href;
  await view.openBox('Control+k');
  await view.type('tackle');
  await view.press('Enter');
  await view.landsOn(href);
  const expected = [[await searchEvent(url, 1, 'tackle'), clickEvent(1, href)]];
  await sends(recorder, 'Enter at once sends the search and the click together', expected);
  await sentNothingElse(view, recorder, expected);
}

async function openedResults(view, site) {
  const recorder = await record(site), { url } = recorder;
  await view.visit(url);
  await view.openBox('Control+k');
  const { options } = await view.search('bollard');
  const expected = [[await searchEvent(url, 1, 'bollard')]];
  await sends(recorder, 'the search is sent before a click', expected);
  const opened = view.context.waitForEvent('page', { timeout: WAIT_MS });
  await view.press('Control+Enter');
  await (await opened).close();
  await view.page.bringToFront();
  expected.push([clickEvent(1, options[0].href)]);
  await sends(recorder, 'Ctrl-Enter is a click with the id of the search', expected);
  const [x, y] = await view.inBox((root) => {
    const { left, top, width, height } = root.querySelector('#option-1').getBoundingClientRect();
    return [left + width / 2, top + height / 2];
  });
  await view.page.mouse.click(x, y, { button: 'middle' });
  expected.push([clickEvent(1, options[1].href)]);
  await sends(recorder, 'a click with the middle button is a click', expected);
  await view.page.mouse.click(x, y, { button: 'right' });
  await view.page.bringToFront();
  await view.page.mouse.click(x, y);
  await view.landsOn(options[1].href);
  expected.push([clickEvent(1, options[1].href)]);
  await sends(recorder, 'a click opens the result; one with the right button is none', expected);
  await sentNothingElse(view, recorder, expected);
}

// ---- Views ----

async function viewsOf(view, recorder) {
  await view.visit(recorder.url);
  await view.run(() => {
    history.replaceState({ isHydrated: true }, '', location.pathname);
    history.pushState(null, '', '/?a=1');
    history.pushState(null, '', '/?a=1#b');
    history.replaceState(null, '', '/index.html');
    history.pushState(null, '', '/anchors.html?c=2#hawser');
  });
  const [there, back] = [[{ type: 'view', page: '/anchors.html' }], [{ type: 'view', page: '/index.html' }]];
  await sends(recorder, 'a soft navigation to another path is one view, and a change of the query is none', [there]);
  await view.run(() => history.back());
  await sends(recorder, 'the way back is a view', [there, back]);
  await sentNothingElse(view, recorder, [there, back]);
}

async function views(view, site) {
  await viewsOf(view, await record(site));
  const old = await View.open(view.context.browser());
  await old.context.addInitScript(() => { delete window.Navigation; });
  await viewsOf(old, await record(site));
  await old.close();
}

// The site is an export of Next.js for the path `/docs`.
async function nextViews(browser, docwharf, site) {
  const server = await serve(docwharf, site, 'airgap', ['--base-path', '/docs']);
  const recorder = await record(new URL('/docs/', server.url).href);
  const view = await View.open(browser);
  await view.visit(recorder.url);
  await view.page.waitForLoadState('networkidle');
  const paths = await view.run(() => [...document.querySelectorAll('nav a')].map((link) => link.pathname));
  const expected = [];
  for (const number of [2, 5, 1]) {
    await view.click(`nav a:nth-of-type(${number})`);
    // Next.js may open the first page at the address that was visited, which has a slash at its end.
    const readPath = () => view.run(() => location.pathname);
    const page = await eventually(`a click on the link ${number} opens its page`, readPath,
      (pathname) => withoutForm(pathname) === withoutForm(paths[number - 1]));
    expected.push([{ type: 'view', page }]);
    await sends(recorder, `a click on the link ${number} of Next.js is one view`, expected);
  }
  await sentNothingElse(view, recorder, expected);
  await view.close();
  await server.stop();
}

// ---- Readers and hosts without events ----

async function sendsNothing(view, recorder) {
  await view.visit(recorder.url);
  await view.openBox('Control+k');
  await view.search('hawser');
  await closes(view);
  await view.run(() => history.pushState(null, '', '/own.html'));
  await view.openBox('Control+k');
  const { options } = await view.search('tackle');
  await view.press('Enter');
  await view.landsOn(options[0].href);
  await sentNothingElse(view, recorder, []);
}

async function optOut(view, site) {
  for (const [name, value] of [['globalPrivacyControl', true], ['doNotTrack', '1']]) {
    const one = await View.open(view.context.browser());
    await one.context.addInitScript(([key, set]) => {
      Object.defineProperty(Navigator.prototype, key, { get: () => set, configurable: true });
    }, [name, value]);
    await one.visit(site);
    promise(`the browser has ${name}`, await one.run((key) => navigator[key], name) === value);
    await sendsNothing(one, await record(site));
    await one.close();
  }
}

async function withoutRecording(view, site) {
  await sendsNothing(view, await record(site, false));
}

module.exports = {
  eventParts: [
    finishedSearches, closedSearches, searchesWithoutResults, composedSearches, openedAtOnce, openedResults, views,
    optOut, withoutRecording,
  ],
  nextViews,
};

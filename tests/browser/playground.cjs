// "Try it" forms in Chromium, under each content security policy: with playground.rewrite, calls of fetch and
// XMLHttpRequest to a listed API go through docwharf; all other calls are as they are. The API knows nothing of CORS.
//
// node playground.cjs DOCWHARF. Needs playwright-core and a system Chromium; `.ci/extra playground` calls it without a
// network. The first broken promise ends it with 1.

const { chromium } = require('playwright-core');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');
const zlib = require('node:zlib');
const { View, endServers, eventually, part, promise, start } = require('./search/view.cjs');

const docwharf = path.resolve(process.argv[2]);
const PRESETS = ['off', 'report', 'connected', 'airgap'];
const BYTES = Buffer.from(Array.from({ length: 256 }, (_, n) => n));

// ---- The API ----

// Starts an API on a free port. `requests` has what it received.
async function startApi() {
  const requests = [];
  const server = http.createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const body = Buffer.concat(chunks);
      const { method, url, headers } = request;
      requests.push({ method, url, headers, body });
      const json = { 'Content-Type': 'application/json', 'X-Api': 'yes', 'Set-Cookie': 'planted=1' };
      const routes = {
        '/v1/echo': () => response.writeHead(201, json).end(JSON.stringify({ method, body: body.toString('latin1') })),
        '/v1/bytes': () => response.writeHead(200, { 'Content-Type': 'application/octet-stream' }).end(BYTES),
        '/v1/gzip': () => response.writeHead(200, { 'Content-Encoding': 'gzip' }).end(zlib.gzipSync('unpacked')),
        '/v1/empty': () => response.writeHead(204).end(),
        '/v1/moved': () => response.writeHead(302, { Location: '/v1/echo' }).end(),
        '/v1/xml': () => response.writeHead(200, { 'Content-Type': 'text/xml' }).end('<berths><berth/></berths>'),
        '/v1/silent': () => {},
      };
      const route = routes[url.split('?')[0]];
      if (route) route();
      else response.writeHead(404, json).end('{"error":"no such berth"}');
    });
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return { origin: `http://127.0.0.1:${server.address().port}`, requests, server };
}

// ---- The site ----

function writeSite(dir, api) {
  fs.mkdirSync(dir, { recursive: true });
  fs.writeFileSync(path.join(dir, 'index.html'), `<!doctype html><title>Try it</title>
<script>
  window.before = fetch('${api}/v1/before').then(() => 'sent', () => 'failed');
</script>
<form id=try><input name=berth value=7><button>Try it</button></form><pre id=answer></pre>
<script src=early.js></script>
<script src=form.js defer></script>
<iframe src="frame.html" hidden></iframe>`);
  fs.writeFileSync(path.join(dir, 'frame.html'), '<p>A page in a frame.');
  fs.writeFileSync(path.join(dir, 'early.js'), 'window.nativeFetch = window.fetch;');
  fs.writeFileSync(path.join(dir, 'form.js'), `
    document.getElementById('try').addEventListener('submit', async (event) => {
      event.preventDefault();
      const response = await fetch('${api}/v1/echo?berth=' + event.target.berth.value, {
        method: 'POST', headers: { 'Content-Type': 'application/json', Authorization: 'Bearer t0ken' },
        body: JSON.stringify({ berth: event.target.berth.value }),
      });
      document.getElementById('answer').textContent = response.status + ' ' + (await response.json()).body;
    });`);
  return dir;
}

const config = (api) => `[playground]
enabled = true
rewrite = true
perMinute = 10000
[[playground.allow]]
origin = "${api}"
methods = ["GET", "POST", "PUT"]
paths = ["/v1/*"]
addresses = ["127.0.0.1"]
`;

// Serves the site without the search box, so that its tag comes from the playground alone.
function serve(dir, api, preset, searchBox) {
  const file = path.join(dir, '..', `${preset}.toml`);
  fs.writeFileSync(file, config(api));
  const args = ['serve', dir, '--listen', '127.0.0.1:0', '--csp', preset, '--search-box', searchBox, '--config', file];
  return start(docwharf, args, (said) => preset === 'off' || said.err.includes('the longest policy has'));
}

// ---- Calls in the page ----

// Sends a request with XMLHttpRequest: what the page learns of it.
const useXhr = (method, url, { type = '', body = null, timeout = 0, abortAfter = 0, headers = {} } = {}) =>
  new Promise((done) => {
    const xhr = new XMLHttpRequest();
    const events = [];
    const names = ['loadstart', 'progress', 'load', 'error', 'abort', 'timeout', 'loadend'];
    names.forEach((name) => xhr.addEventListener(name, () => events.push(name)));
    xhr.onreadystatechange = () => events.push(xhr.readyState);
    xhr.open(method, url);
    xhr.responseType = type;
    xhr.timeout = timeout;
    Object.entries(headers).forEach((field) => xhr.setRequestHeader(...field));
    xhr.onloadend = async () => {
      const { status, readyState, responseURL, response } = xhr;
      let shown = response;
      if (response instanceof ArrayBuffer) shown = [...new Uint8Array(response)];
      if (response instanceof Blob) shown = [...new Uint8Array(await response.arrayBuffer())];
      if (response instanceof Document) shown = response.documentElement.outerHTML;
      const field = xhr.getResponseHeader('X-Api');
      const all = xhr.getAllResponseHeaders();
      done({ status, readyState, responseURL, shown, field, all, events });
    };
    xhr.send(body);
    if (abortAfter) setTimeout(() => xhr.abort(), abortAfter);
  });

async function useFetchCalls(view, api) {
  const call = (work, ...values) => view.run(work, api.origin, ...values);
  const found = await call(async (origin) => {
    const get = async (path, init) => {
      const response = await fetch(new URL(path, origin), init);
      const bytes = new Uint8Array(await response.arrayBuffer());
      const { status, ok, url, type } = response;
      const [text, latin1] = [new TextDecoder().decode(bytes), String.fromCharCode(...bytes)];
      return { status, ok, url, type, text, latin1, field: response.headers.get('X-Api') };
    };
    const form = new FormData();
    form.append('file', new Blob(['\u0000\u00ff'], { type: 'x/y' }), 'a');
    return {
      echo: await get('/v1/echo#part', { method: 'PUT', body: 'caf\u00e9' }),
      request: await get('/v1/echo', new Request(`${origin}/v1/echo`, { method: 'POST', body: 'inner' })),
      params: await get('/v1/echo', { method: 'POST', body: new URLSearchParams({ a: 'b c' }) }),
      form: await get('/v1/echo', { method: 'POST', body: form }),
      blob: await get('/v1/echo', { method: 'POST', body: new Blob([new Uint8Array([0, 255, 128])]) }),
      bytes: await get('/v1/bytes'),
      gzip: await get('/v1/gzip'),
      empty: await get('/v1/empty'),
      moved: await get('/v1/moved'),
      missing: await get('/v1/absent'),
      setCookie: (await fetch(`${origin}/v1/echo`)).headers.get('set-cookie'),
      clone: await fetch(`${origin}/v1/echo`).then((response) => response.clone().json()).then((json) => json.method),
    };
  });
  promise('fetch sends method and body, and shows status, fields and address', found.echo.status === 201
    && found.echo.ok && found.echo.field === 'yes' && found.echo.type === 'cors'
    && found.echo.url === `${api.origin}/v1/echo` && JSON.parse(found.echo.text).body === 'caf\u00c3\u00a9',
  found.echo);
  promise('parameters are sent', JSON.parse(found.params.text).body === 'a=b+c', found.params);
  promise('a form is sent', /filename="a"[^]*\u0000\u00c3\u00bf/.test(JSON.parse(found.form.text).body), found.form);
  promise('bytes are sent', JSON.parse(found.blob.text).body === '\u0000\u00ff\u0080', found.blob);
  promise('bytes are received', found.bytes.latin1 === BYTES.toString('latin1'), found.bytes);
  promise('a coded body is decoded', found.gzip.text === 'unpacked', found.gzip);
  promise('204 has no body', found.empty.status === 204 && found.empty.text === '', found.empty);
  promise('a redirect is the response', found.moved.status === 302, found.moved);
  promise('404 is a response', found.missing.status === 404 && !found.missing.ok, found.missing);
  promise('no cookie is shown', found.setCookie === null, found.setCookie);
  promise('a response can be cloned', found.clone === 'GET', found.clone);
  const failures = await call(async (origin) => {
    const failure = (promise) => promise.then(() => 'no error', (error) => error.name);
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 100);
    return [
      await failure(fetch(`${origin}/v2/outside`)),
      await failure(fetch(`${origin}/v1/echo`, { method: 'DELETE' })),
      await failure(fetch(`${origin}/v1/silent`, { signal: controller.signal })),
      await failure(fetch(`${origin}/v1/silent`, { signal: AbortSignal.abort() })),
      await failure(fetch(`${origin}/v1/moved`, { redirect: 'error' })),
      await failure(fetch(`${origin}/v1/echo`, { method: 'GET', body: 'x' })),
    ];
  });
  const expected = ['TypeError', 'TypeError', 'AbortError', 'AbortError', 'TypeError', 'TypeError'];
  promise('what is refused, aborted or invalid fails as without docwharf', `${failures}` === `${expected}`, failures);
}

async function useXhrCalls(view, api) {
  const send = (method, where, options = {}) => view.run(useXhr, method, api.origin + where, options);
  const echo = await send('POST', '/v1/echo', { body: 'caf\u00e9', headers: { 'X-One': '1' } });
  promise('XMLHttpRequest shows status, fields, address and text', echo.status === 201 && echo.readyState === 4
    && echo.field === 'yes' && echo.responseURL === `${api.origin}/v1/echo` && !/set-cookie/i.test(echo.all)
    && JSON.parse(echo.shown).body === 'caf\u00c3\u00a9' && /x-api: yes\r\n/.test(echo.all), echo);
  const order = [1, 'loadstart', 2, 3, 'progress', 4, 'load', 'loadend'];
  promise('its events have their order', `${echo.events}` === `${order}`, echo.events);
  const json = await send('GET', '/v1/echo', { type: 'json' });
  promise('it parses JSON', json.shown.method === 'GET', json);
  const text = await send('GET', '/v1/bytes', { type: 'arraybuffer' });
  promise('it receives bytes', `${text.shown}` === `${[...BYTES]}`, text.shown.length);
  const blob = await send('GET', '/v1/bytes', { type: 'blob' });
  promise('it receives a blob', `${blob.shown}` === `${[...BYTES]}`, blob.shown.length);
  const xml = await send('GET', '/v1/xml', { type: 'document' });
  promise('it receives a document', xml.shown === '<berths><berth/></berths>', xml);
  const refused = await send('GET', '/v2/outside');
  promise('what is refused is an error', refused.status === 0 && refused.events.includes('error')
    && !refused.events.includes('load'), refused);
  const aborted = await send('GET', '/v1/silent', { abortAfter: 100 });
  promise('it can be aborted', aborted.events.includes('abort') && aborted.status === 0, aborted);
  const late = await send('GET', '/v1/silent', { timeout: 150 });
  promise('it times out', late.events.includes('timeout') && late.status === 0, late);
  const rest = await view.run((origin, own) => {
    const now = new XMLHttpRequest();
    now.open('POST', `${origin}/v1/echo`, false);
    now.send('now');
    const again = new XMLHttpRequest();
    again.open('GET', `${origin}/v1/echo`);
    again.open('GET', own, false);
    again.send();
    let error = '';
    try {
      new XMLHttpRequest().open('G T', `${origin}/v1/echo`);
    } catch ({ name }) {
      error = name;
    }
    return { now: now.responseText, again: [again.status, again.responseText.slice(0, 15)], error };
  }, api.origin, view.url);
  promise('a synchronous request is answered', JSON.parse(rest.now).body === 'now', rest);
  promise('an object can be opened again for this site', `${rest.again}` === '200,<!doctype html>', rest);
  promise('an invalid method is an error', ['SyntaxError', 'TypeError'].includes(rest.error), rest);
}

async function otherCalls(view, other, preset) {
  const found = await view.run(async (origin, own) => {
    const outcome = (promise) => promise.then((response) => response.status, (error) => error.name);
    const isSame = (name) => /\[native code\]/.test(Function.prototype.toString.call(window[name]));
    return {
      other: await outcome(fetch(`${origin}/v1/echo`)),
      opaque: await outcome(fetch(`${origin}/v1/opaque`, { mode: 'no-cors' })),
      own: await outcome(fetch(own)),
      relative: await outcome(fetch('frame.html')),
      data: await fetch('data:text/plain,x').then((response) => response.text()),
      invalid: await outcome(fetch('http://')),
      early: await window.before,
      class: isSame('XMLHttpRequest') && new XMLHttpRequest() instanceof XMLHttpRequest,
    };
  }, other.origin, view.url);
  promise('a call to another origin still needs CORS', found.other === 'TypeError', found);
  const isOpen = preset === 'off' || preset === 'report';
  promise('a call to another origin that needs none is sent unless the policy forbids it',
    isOpen ? found.opaque === 0 : found.opaque === 'TypeError', found);
  promise('calls to this site are as they were',
    found.own === 200 && found.relative === 200 && found.data === 'x', found);
  promise('an invalid address is an error', found.invalid === 'TypeError', found);
  promise('calls before the tag are as they were', found.early === 'failed', found);
  promise('XMLHttpRequest is that of the browser', found.class, found);
}

async function tryIt(browser, dir, preset, searchBox) {
  const [api, other] = [await startApi(), await startApi()];
  const server = await serve(writeSite(dir, api.origin), api.origin, preset, searchBox);
  const view = await View.open(browser);
  await view.context.addCookies([{ name: 'session', value: '1', domain: '127.0.0.1', path: '/' }]);
  await view.page.goto(server.url, { waitUntil: 'load' });
  view.url = server.url;
  await eventually('the tag has run', () => view.run(() => window.fetch !== window.nativeFetch), Boolean);
  const before = view.violations.length;
  await view.click('#try button');
  await eventually('the form shows the answer of the API', () => view.run(() =>
    document.getElementById('answer').textContent), (text) => text === '201 {"berth":"7"}');
  const [sent] = api.requests.filter(({ url }) => url === '/v1/echo?berth=7');
  const { headers } = sent;
  promise('the API gets the fields of the form', headers.authorization === 'Bearer t0ken'
    && headers['content-type'] === 'application/json', headers);
  const hidden = ['cookie', 'origin', 'referer', 'sec-fetch-site', 'sec-ch-ua'].filter((name) => headers[name]);
  promise('the API gets nothing of the reader', hidden.length === 0, hidden);
  await useFetchCalls(view, api);
  await useXhrCalls(view, api);
  promise('nothing of it violates the policy', view.violations.length === before, view.violations);
  promise('the API planted no cookie', (await view.context.cookies()).length === 1);
  await otherCalls(view, other, preset);
  await view.close();
  await server.stop();
  [api, other].forEach(({ server: one }) => { one.closeAllConnections(); one.close(); });
}

async function main() {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-playground-'));
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  try {
    for (const preset of PRESETS) {
      for (const searchBox of ['never', 'always']) {
        await part(`csp ${preset}, search box ${searchBox}`, () =>
          tryIt(browser, path.join(dir, `${preset}-${searchBox}`, 'site'), preset, searchBox));
      }
    }
  } finally {
    await browser.close();
    endServers();
    fs.rmSync(dir, { recursive: true, force: true });
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});

// Chromium under each content security policy: what stands in the pages runs, what is elsewhere is refused at once, and
// nothing else is.
//
// node csp.cjs DOCWHARF CORPUS SCREENS; needs playwright-core and a system Chromium. `.ci/extra csp` calls it. The outside host
// is a socket of ours: one that answers, and one that accepts and is silent.

const { chromium } = require('playwright-core');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const net = require('node:net');
const os = require('node:os');
const path = require('node:path');

const [docwharf, corpus, screens] = process.argv.slice(2).map((p) => path.resolve(p));
const wrong = [];
const expect = (yes, what) => { if (!yes) wrong.push(what); };

function serve(site, preset) {
  return new Promise((resolve, reject) => {
    const child = spawn(docwharf, ['serve', site, '--listen', '127.0.0.1:0', '--csp', preset], { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = { out: '', err: '' };
    const look = () => {
      const url = said.out.match(/http:\/\/\S+/);
      if (url && (preset === 'off' || said.err.includes('the longest policy has'))) resolve({ url: url[0], child, said });
    };
    child.stdout.on('data', (data) => { said.out += data; look(); });
    child.stderr.on('data', (data) => { said.err += data; look(); });
    child.on('exit', (code) => reject(new Error(`serve ended with ${code}: ${said.err}`)));
  });
}

// A picture of one blue pixel, so that something is seen where it is allowed.
const PIXEL = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPj/HwADBwIAMCbHYQAAAABJRU5ErkJggg==', 'base64');

function outside() {
  const asked = [];
  const server = http.createServer((request, answer) => {
    asked.push(request.url);
    const type = request.url.endsWith('.js') ? 'text/javascript' : request.url.endsWith('.css') ? 'text/css' : 'image/png';
    const body = request.url.endsWith('.js') ? 'document.getElementById("outside").textContent = "outside script ran"'
      : request.url.endsWith('.css') ? 'h1 { color: rgb(0, 128, 0) }' : PIXEL;
    answer.writeHead(200, { 'Content-Type': type, 'Access-Control-Allow-Origin': '*' });
    answer.end(body);
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => {
    resolve({ origin: `http://localhost:${server.address().port}`, asked, close: () => server.close() });
  }));
}

function silent() {
  const held = [];
  const server = net.createServer((socket) => { held.push(socket); socket.on('error', () => {}); });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => {
    const close = () => { held.forEach((socket) => socket.destroy()); server.close(); };
    resolve({ origin: `http://localhost:${server.address().port}`, held, close });
  }));
}

function write(dir, origin) {
  fs.mkdirSync(dir, { recursive: true });
  const push = Array.from({ length: 30 }, (_, n) => `<script>(self.__next_f=self.__next_f||[]).push([1,"${n}"])</script>`).join('\n');
  const many = Array.from({ length: 300 }, (_, n) => `<script>(self.__f=self.__f||[]).push("${n}")</script>`).join('\n');
  fs.writeFileSync(path.join(dir, 'index.html'), `<!doctype html><html lang="en"><meta charset="utf-8"><title>Needs</title>
<link rel="stylesheet" href="style.css">
<link rel="preconnect" href="${origin}"><link rel="stylesheet" href="${origin}/a.css">
<style>\r\n#inline { color: rgb(0, 0, 255) }\r\n</style>
<script>document.documentElement.dataset.theme = 'dark';\r\n// a comment, and é\r\n</script>
<script type="application/ld+json">{"@context": "https://schema.org"}</script>
<h1>What this page needs</h1>
<p id="inline" style="font-weight: bold">styled inline</p><p id="outside">outside script did not run</p>
<p id="wasm">-</p><p id="worker">-</p><p id="clicked">-</p><p id="made" >-</p>
<button onclick="document.getElementById('clicked').textContent = 'clicked &amp; done'">click</button>
<iframe srcdoc="<script>parent.framed = 1 &amp;&amp; 2</script>" width="40" height="20"></iframe>
<img id="picture" src="${origin}/p.png" width="40" height="40" alt="picture">
${push}
<script src="app.js"></script><script src="${origin}/o.js"></script></html>`);
  fs.writeFileSync(path.join(dir, 'many.html'), `<!doctype html><title>Many</title><p>many scripts</p>${many}`);
  fs.writeFileSync(path.join(dir, 'plain.html'), '<!doctype html><title>Plain</title><style>p { color: rgb(1, 2, 3) }</style><p style="margin: 5px">plain, without scripts</p>');
  fs.writeFileSync(path.join(dir, 'style.css'), `@font-face { font-family: Far; src: url("${origin}/f.woff2") } body { font-family: Far, sans-serif; margin: 2rem }`);
  fs.writeFileSync(path.join(dir, 'app.js'), `
const put = (id, text) => { document.getElementById(id).textContent = text; };
WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])).then(() => put('wasm', 'wasm runs'), (e) => put('wasm', String(e)));
const worker = new Worker(URL.createObjectURL(new Blob(['postMessage("worker runs")'], { type: 'text/javascript' })));
worker.onmessage = (event) => put('worker', event.data);
const style = document.createElement('style'); style.textContent = '#made { color: rgb(9, 8, 7) }'; document.head.append(style);
put('made', 'styled by a script');
fetch('app.js').then((answer) => answer.text());
fetch("${origin}/api.png").catch(() => {});`);
}

async function open(browser, url) {
  const page = await browser.newPage({ viewport: { width: 900, height: 700 } });
  const told = [];
  page.on('console', (message) => { if (message.type() === 'error' || /policy/i.test(message.text())) told.push(message.text()); });
  page.on('pageerror', (error) => told.push(`threw: ${error}`));
  const began = Date.now();
  await page.goto(url, { waitUntil: 'load', timeout: 20000 });
  const took = Date.now() - began;
  await page.waitForTimeout(500);
  return { page, told, took };
}

const text = (page, id) => page.$eval(`#${id}`, (element) => element.textContent);
const color = (page, what) => page.$eval(what, (element) => getComputedStyle(element).color);

// What stands in the page and runs in it, whatever the preset.
async function inside(page, preset) {
  expect(await page.evaluate(() => document.documentElement.dataset.theme) === 'dark', `${preset}: the inline script did not run`);
  expect(await page.evaluate(() => self.__next_f.length) === 30, `${preset}: not all scripts of the page ran`);
  expect(await color(page, '#inline') === 'rgb(0, 0, 255)', `${preset}: the inline style does not hold`);
  expect(await color(page, '#made') === 'rgb(9, 8, 7)', `${preset}: the style that a script has made does not hold`);
  expect(await text(page, 'wasm') === 'wasm runs', `${preset}: ${await text(page, 'wasm')}`);
  expect(await text(page, 'worker') === 'worker runs', `${preset}: the worker did not run`);
  await page.click('button');
  expect(await text(page, 'clicked') === 'clicked & done', `${preset}: the handler did not run`);
  expect(await page.evaluate(() => window.framed) === 2, `${preset}: the script of the page in the page did not run`);
}

// A script that nobody put there is refused.
async function injected(page, preset) {
  const ran = await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.injected = true';
    document.body.append(script);
    return window.injected === true;
  });
  expect(ran === (preset === 'off' || preset === 'report'), `${preset}: an injected script ${ran ? 'ran' : 'did not run'}`);
}

async function presets(browser, dir) {
  const far = await outside();
  const site = path.join(dir, 'near');
  write(site, far.origin);
  for (const preset of ['off', 'report', 'connected', 'airgap']) {
    far.asked.length = 0;
    const { url, child, said } = await serve(site, preset);
    const { page, told, took } = await open(browser, url);
    await inside(page, preset);
    const airgap = preset === 'airgap';
    expect((await text(page, 'outside') === 'outside script ran') === !airgap, `${preset}: ${await text(page, 'outside')}`);
    expect((await color(page, 'h1') === 'rgb(0, 128, 0)') === !airgap, `${preset}: the outside style`);
    expect(far.asked.length === 0 === airgap, `${preset}: asked outside: ${far.asked}`);
    // The font that is a picture is refused by the font decoder, which is no error of a policy.
    const refused = told.filter((line) => /Content Security Policy|Content-Security-Policy/.test(line));
    if (airgap) {
      for (const what of ['a.css', 'o.js', 'p.png', 'api.png', 'f.woff2']) {
        expect(refused.some((line) => line.includes(what)), `airgap: the console does not say that ${what} was refused`);
      }
    }
    const inner = airgap ? refused.filter((line) => !line.includes(far.origin)) : refused;
    expect(inner.length === 0, `${preset}: ${inner.join('\n')}`);
    await page.screenshot({ path: path.join(screens, `csp-${preset}.png`) });
    await injected(page, preset);
    for (const other of ['many.html', 'plain.html']) {
      const { page, told } = await open(browser, url + other);
      const lines = told.filter((line) => /policy/i.test(line));
      expect(lines.length === 0, `${preset} ${other}: ${lines.join('\n')}`);
      if (other === 'many.html') expect(await page.evaluate(() => self.__f.length) === 300, `${preset}: not all of many scripts ran`);
      else expect(await color(page, 'p') === 'rgb(1, 2, 3)', `${preset}: the style of a page without scripts`);
      await page.close();
    }
    if (preset !== 'off') expect(said.err.includes('more inline scripts than'), `${preset}: the log does not say that one page falls back`);
    console.log(`${preset}: loaded in ${took} ms, ${refused.length} refusals on the console, outside asked ${far.asked.length} times`);
    await page.close();
    child.kill('SIGINT');
  }
  far.close();
}

// A host that accepts and says nothing: the browser waits for it, unless it is told not to.
async function silence(browser, dir) {
  const far = await silent();
  const site = path.join(dir, 'silent');
  write(site, far.origin);
  const { url, child } = await serve(site, 'airgap');
  const { page, told, took } = await open(browser, url);
  await inside(page, 'airgap beside a silent host');
  expect(took < 3000, `airgap: ${took} ms beside a silent host`);
  expect(told.some((line) => line.includes('o.js') && /refused|violates|blocked/i.test(line)), 'airgap: the console says nothing of a refusal');
  await page.screenshot({ path: path.join(screens, 'csp-silent.png') });
  console.log(`airgap beside a silent host: loaded in ${took} ms`);
  await page.close();
  child.kill('SIGINT');
  const without = await serve(site, 'off');
  const waits = await browser.newPage();
  const late = await waits.goto(without.url, { waitUntil: 'load', timeout: 5000 }).then(() => false, () => true);
  expect(late, 'without a policy the browser did not wait for the silent host: this test shows nothing');
  console.log(`without a policy: ${late ? 'still waiting after 5000 ms' : 'loaded'}`);
  await waits.close();
  without.child.kill('SIGINT');
  far.close();
}

// Real sites under the strictest policy: nothing of theirs is refused.
async function real(browser) {
  for (const [name, pages] of [
    ['python', ['index.html', 'library/asyncio-task.html', 'tutorial/index.html', 'search.html?q=asyncio', 'genindex.html']],
    ['rust', ['index.html', 'std/index.html', 'std/vec/struct.Vec.html', 'book/index.html', 'std/index.html?search=vec', 'cargo/index.html']],
  ]) {
    const { url, child, said } = await serve(path.join(corpus, name, 'site.zip'), 'airgap');
    for (const one of pages) {
      const { page, told } = await open(browser, url + one);
      await page.waitForTimeout(1000);
      const lines = told.filter((line) => /policy/i.test(line));
      expect(lines.length === 0, `${name} ${one}: ${lines.slice(0, 3).join('\n')}`);
      if (one.includes('search') || one.includes('Vec')) await page.screenshot({ path: path.join(screens, `csp-${name}-${pages.indexOf(one)}.png`) });
      await page.close();
    }
    console.log(`${name}: ${pages.length} pages under airgap\n${said.err.trim()}`);
    child.kill('SIGINT');
  }
}

(async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-csp-'));
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    await presets(browser, dir);
    await silence(browser, dir);
    if (fs.existsSync(path.join(corpus, 'done'))) await real(browser);
  } finally {
    await browser.close();
    fs.rmSync(dir, { recursive: true });
  }
  if (wrong.length) {
    console.error(wrong.join('\n'));
    process.exit(1);
  }
})();

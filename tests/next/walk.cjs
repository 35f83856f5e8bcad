// Chromium walks exports of Next.js by soft navigation before, through and after a swap of the active version: no error in
// the console, no answer of 400 or more, and a page of the old version still gets its chunks.
//
// node walk.cjs DOCWHARF EXPORTS SCREENS; EXPORTS has a folder for each kind of export with the editions 1 and 2 in it.
// Needs playwright-core and a system Chromium; `.ci/extra next` builds the exports and calls it. All hosts but the one that
// is looked at cannot be resolved. The environment goes on to docwharf, to walk under other settings: DOCWHARF_SERVER__CSP.

const { chromium } = require('playwright-core');
const { spawn, execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const [docwharf, exports_, screens] = process.argv.slice(2).map((p) => path.resolve(p));
const PAGES = ['Home', 'Guides', 'Start', 'Deeper', 'One', 'Two', 'Edition'];

class Host {
  constructor(kind, base) {
    this.kind = kind;
    this.base = base;
    this.dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-next-'));
    this.config = path.join(this.dir, 'docwharf.toml');
    fs.writeFileSync(this.config, `[store]\npath = "store"\n[server]\nlisten = "127.0.0.1:0"\nbasePath = "${base}/"\n`);
  }

  import(edition) {
    const args = ['import', path.join(exports_, this.kind, edition), '--config', this.config];
    execFileSync(docwharf, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  }

  run() {
    this.child = spawn(docwharf, ['run', '--config', this.config], { stdio: ['ignore', 'pipe', 'inherit'] });
    this.ended = new Promise((done) => this.child.on('exit', done));
    return new Promise((resolve, reject) => {
      let out = '';
      this.child.stdout.on('data', (data) => {
        out += data;
        const url = out.match(/http:\/\/\S+/);
        if (url) resolve(url[0].replace(/\/$/, '') + this.base);
      });
      this.ended.then((code) => reject(new Error(`docwharf run ended with ${code}`)));
    });
  }

  async stop() {
    this.child.kill('SIGTERM');
    const code = await this.ended;
    fs.rmSync(this.dir, { recursive: true, force: true });
    if (code !== 0) throw new Error(`docwharf run ended with ${code}`);
  }
}

// What must not happen on a page.
function watch(page, wrong) {
  const seen = { payloads: 0, probes: 0, assets: 0 };
  page.on('console', (message) => { if (message.type() === 'error') wrong.push(`console: ${message.text()}`); });
  page.on('pageerror', (error) => wrong.push(`page: ${error}`));
  page.on('response', (response) => {
    const url = new URL(response.url());
    if (response.status() >= 400) wrong.push(`${response.status()} ${response.request().method()} ${url.pathname}`);
    if (url.pathname.endsWith('.txt')) seen.payloads += 1;
    if (response.request().method() === 'HEAD') seen.probes += 1;
    if (url.pathname.includes('/_next/static/')) seen.assets += 1;
  });
  page.on('requestfailed', (request) => {
    // What a browser gives up because the reader has gone on is nobody's fault.
    if (request.failure().errorText !== 'net::ERR_ABORTED') wrong.push(`${request.failure().errorText} ${request.url()}`);
  });
  return seen;
}

async function click(page, name) {
  await page.click(`nav a:text-is("${name}")`);
  await page.waitForFunction((name) => document.querySelector('h1')?.textContent === name, name, { timeout: 15000 });
}

const edition = async (page) => (await page.textContent('footer')).trim().replace(/\D+/g, '');
const mark = (page) => page.evaluate(() => { window.walked = true; });
const isMarked = (page) => page.evaluate(() => window.walked === true);

// Every page, by soft navigation: the document stays the same one.
async function walkSoftly(page, wrong, when) {
  await mark(page);
  for (const name of [...PAGES, ...PAGES.toReversed()]) {
    await click(page, name);
    if (!(await isMarked(page))) wrong.push(`${when}: "${name}" was loaded anew`);
  }
}

async function showRows(page, number, wrong, when) {
  await page.click('button');
  const rows = await page.waitForSelector('#rows', { timeout: 15000 }).then((found) => found.textContent(), () => 'nothing');
  if (rows !== `High water of edition ${number}`) wrong.push(`${when}: the chunk of edition ${number} gave ${rows}`);
}

async function look(browser, kind, base) {
  const wrong = [];
  const host = new Host(kind, base);
  host.import('1');
  const url = await host.run();
  const context = await browser.newContext();
  const page = await context.newPage();
  const seen = watch(page, wrong);
  // Opened before the swap, and not touched until after it.
  const left = await context.newPage();
  watch(left, wrong);
  await left.goto(`${url}/edition`, { waitUntil: 'networkidle' });
  // A page in the background draws once a second, and a click waits for two drawings.
  await page.bringToFront();

  await page.goto(`${url}/`, { waitUntil: 'networkidle' });
  if ((await edition(page)) !== '1') wrong.push('edition 1 is not there');
  await walkSoftly(page, wrong, 'before');

  // Through: somebody goes on clicking while the version is swapped.
  let swapped = false;
  const swap = new Promise((done) => setTimeout(() => { host.import('2'); swapped = true; done(); }, 50));
  for (let i = 0; !swapped || i < PAGES.length * 2; i++) await click(page, PAGES[i % PAGES.length]);
  await swap;

  await left.bringToFront();
  await showRows(left, 1, wrong, 'after');
  for (const name of PAGES) await click(left, name);
  for (const one of [left, page]) {
    // Whatever its client had in store of the old version, a reader who loads a page anew has the new one.
    await one.bringToFront();
    await one.goto(`${url}/`, { waitUntil: 'networkidle' });
    if ((await edition(one)) !== '2') wrong.push(`after: edition ${await edition(one)}`);
  }
  await walkSoftly(page, wrong, 'after');
  await click(page, 'Edition');
  await showRows(page, 2, wrong, 'after');
  for (const spelling of ['/guides/start', '/guides/start/', '/guides/start.html', '/guides/start/index.html']) {
    await page.goto(url + spelling, { waitUntil: 'networkidle' });
    await mark(page);
    await click(page, 'One');
    await click(page, 'Start');
    if (!(await isMarked(page))) wrong.push(`from ${spelling}: loaded anew`);
  }
  await page.screenshot({ path: path.join(screens, `next-${kind}.png`) });
  await context.close();
  await host.stop();
  if (!seen.payloads || !seen.probes || !seen.assets) wrong.push(`the client asked for nothing: ${JSON.stringify(seen)}`);
  return { wrong: [...new Set(wrong)], seen };
}

(async () => {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  let failed = 0;
  for (const [kind, base] of [['plain', ''], ['slash', ''], ['based', '/docs']]) {
    const began = Date.now();
    const { wrong, seen } = await look(browser, kind, base);
    const took = Math.round((Date.now() - began) / 1000);
    const asked = `${seen.payloads} payloads, ${seen.probes} probes, ${seen.assets} assets in ${took} s`;
    console.log(`${wrong.length ? 'FAILED' : 'ok'} ${kind}: ${asked}`);
    for (const line of wrong.slice(0, 20)) console.log(`   ${line}`);
    failed += wrong.length;
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
})();

// Chromium looks at `docwharf demo`: every page of the tour arrives whole, and a change of its source shows in a moment.
//
// node demo.cjs DOCWHARF SCREENS; needs playwright-core and a system Chromium. `.ci/extra demo` calls it.

const { chromium } = require('playwright-core');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const [docwharf, screens] = process.argv.slice(2).map((p) => path.resolve(p));

function demo() {
  return new Promise((resolve, reject) => {
    const child = spawn(docwharf, ['demo'], { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = { out: '', err: '' };
    const ended = new Promise((done) => child.on('exit', done));
    const look = () => {
      const url = said.out.match(/http:\/\/\S+/);
      const source = said.err.match(/source\s+(\S+)/);
      const active = said.err.includes('is active');
      if (url && source && active) resolve({ url: url[0], source: source[1], child, ended });
    };
    child.stdout.on('data', (data) => { said.out += data; look(); });
    child.stderr.on('data', (data) => { said.err += data; look(); });
    ended.then((code) => reject(new Error(`demo ended with ${code}: ${said.err}`)));
  });
}

(async () => {
  const { url, source, child, ended } = await demo();
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  const wrong = [];
  page.on('pageerror', (error) => wrong.push(String(error)));
  page.on('requestfailed', (request) => wrong.push(`failed: ${request.url()}`));
  page.on('response', (response) => { if (response.status() >= 400) wrong.push(`${response.status()}: ${response.url()}`); });
  page.on('request', (request) => { if (!request.url().startsWith(url)) wrong.push(`outside: ${request.url()}`); });

  const seen = new Set();
  const queue = [url];
  while (queue.length) {
    const next = queue.shift().split('#')[0];
    if (seen.has(next)) continue;
    seen.add(next);
    await page.goto(next, { waitUntil: 'networkidle' });
    for (const link of await page.$$eval('a[href]', (links) => links.map((a) => a.href))) {
      if (link.startsWith(url)) queue.push(link);
    }
  }
  await page.goto(url, { waitUntil: 'networkidle' });
  await page.screenshot({ path: path.join(screens, 'demo.png') });

  const file = path.join(source, 'guides/try-it.html');
  const mark = 'A second version lies at the wharf.';
  fs.writeFileSync(file, fs.readFileSync(file, 'utf8').replace('The first version lies at the wharf.', mark));
  const began = Date.now();
  const address = new URL('guides/try-it', url).href;
  const arrived = async () => (await (await page.request.get(address)).text()).includes(mark);
  while (!(await arrived()) && Date.now() - began < 20000) await page.waitForTimeout(50);
  const took = Date.now() - began;
  await page.goto(address, { waitUntil: 'networkidle' });
  if (!(await page.content()).includes(mark)) wrong.push('the change did not arrive');
  await page.screenshot({ path: path.join(screens, 'demo-changed.png') });
  await browser.close();

  child.kill('SIGINT');
  const code = await ended;
  if (code !== 0) wrong.push(`ended with ${code}`);
  if (fs.existsSync(source)) wrong.push(`${source} is still there`);
  console.log(`${seen.size} pages, change seen after ${took} ms`);
  if (wrong.length || seen.size < 10) {
    console.error(wrong.join('\n') || 'too few pages');
    process.exit(1);
  }
})();

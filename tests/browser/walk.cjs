// Chromium walks real sites (Sphinx, rustdoc, mdBook) through serve, import and run, at the root and below a path: every
// page, style, script and image must arrive.
//
// node walk.cjs DOCWHARF CORPUS SCREENS [MODE…]; needs playwright-core and a system Chromium. `.ci/extra browser` calls it.

const { chromium } = require('playwright-core');
const { spawn, execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');

const [docwharf, corpus, screens] = process.argv.slice(2, 5).map((p) => path.resolve(p));
const only = process.argv.slice(5);
const PAGES = 40;

// Whether the site has a file for this address. Debian's documentation also links to what lies in other packages and to
// pages that were never built; those must be 404.
function exists(html, base, url) {
  const name = path.join(html, decodeURIComponent(new URL(url).pathname.slice(new URL(base).pathname.length)));
  return [name, `${name}.html`, path.join(name, 'index.html')].some((file) => fs.statSync(file, { throwIfNoEntry: false })?.isFile());
}

function start(args, env = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(docwharf, args, { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'inherit'] });
    let out = '';
    child.stdout.on('data', (data) => {
      out += data;
      const url = out.match(/http:\/\/\S+/);
      const stop = () => new Promise((stopped) => {
        child.once('exit', stopped);
        child.kill('SIGTERM');
      });
      if (url) resolve({ url: url[0], stop });
    });
    child.on('exit', (code) => reject(new Error(`docwharf ${args.join(' ')} ended with ${code}`)));
  });
}

// The ways to serve a bundle; `based` is the first below a path, where only relative links hold.
const modes = {
  serve: (bundle) => start(['serve', bundle, '--listen', '127.0.0.1:0']),
  based: async (bundle) => {
    const server = await start(['serve', bundle, '--listen', '127.0.0.1:0', '--base-path', '/docs/v1', '--slashes', 'auto']);
    return { ...server, url: `${server.url}docs/v1/` };
  },
  import: async (bundle, dir) => {
    const config = path.join(dir, 'import.toml');
    fs.writeFileSync(config, `[store]\npath = "import-store"\n[server]\nlisten = "127.0.0.1:0"\n`);
    execFileSync(docwharf, ['import', bundle, '--config', config], { stdio: ['ignore', 'ignore', 'inherit'] });
    return start(['run', '--config', config]);
  },
  run: async (bundle, dir) => {
    const config = path.join(dir, 'run.toml');
    fs.writeFileSync(config, `[staticExport]\nbundleUrl = "${bundle}"\n[store]\npath = "run-store"\n[server]\nlisten = "127.0.0.1:0"\n`);
    const server = await start(['run', '--config', config]);
    for (let i = 0; i < 600; i++) {
      if ((await fetch(server.url)).status === 200) return server;
      await new Promise((next) => setTimeout(next, 50));
    }
    throw new Error('no version after 30 s');
  },
};

async function walk(browser, base, html, shot) {
  const page = await browser.newPage();
  const problems = [];
  page.on('response', (r) => {
    if (r.url().startsWith(base) && r.status() >= 400 && (r.status() !== 404 || exists(html, base, r.url()))) problems.push(`${r.status()} ${r.url()}`);
  });
  page.on('requestfailed', (r) => {
    if (r.url().startsWith(base) && r.failure().errorText !== 'net::ERR_ABORTED') problems.push(`${r.failure().errorText} ${r.url()}`);
  });
  const seen = new Set();
  const waiting = [base];
  let opened = 0;
  let images = 0;
  let styles = 0;
  while (waiting.length && opened < PAGES) {
    // Breadth first, with a jump now and then, so that a walk leaves the first folder.
    const url = seen.size % 3 === 2 ? waiting.pop() : waiting.shift();
    if (seen.has(url)) continue;
    seen.add(url);
    const response = await page.goto(url, { waitUntil: 'load' });
    if (response.status() !== 200) continue;
    opened++;
    const found = await page.evaluate(() => ({
      links: [...document.querySelectorAll('a[href]')].map((a) => a.href.split('#')[0]),
      broken: [...document.images].filter((i) => i.complete && !i.naturalWidth && !i.src.startsWith('data:') && i.loading !== 'lazy').map((i) => i.src),
      images: document.images.length,
      styles: [...document.styleSheets].filter((s) => s.href).length,
      text: document.body.innerText.length,
    }));
    images += found.images;
    styles += found.styles;
    if (!found.text && !(await page.title())) problems.push(`empty page ${url}`);
    for (const src of found.broken) if (src.startsWith(base) && exists(html, base, src)) problems.push(`broken image ${src} on ${url}`);
    for (const link of found.links) {
      if (link.startsWith(base) && !seen.has(link) && /\/$|\.html$|\/[^./]+$/.test(link)) waiting.push(link);
    }
    if (opened === 1 || opened === 12) await page.screenshot({ path: `${shot}-${opened}.png` });
  }
  await page.close();
  return { pages: opened, images, styles, problems };
}

(async () => {
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  let failed = 0;
  let passed = 0;
  for (const site of ['python', 'rust']) {
    for (const archive of ['site.zip', 'site.tar.gz']) {
      for (const [mode, serve] of Object.entries(modes)) {
        if (only.length && !only.includes(mode)) continue;
        const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-walk-'));
        const server = await serve(path.join(corpus, site, archive), dir);
        const { pages, images, styles, problems } = await walk(browser, server.url, path.join(corpus, site, 'html'), path.join(screens, `${site}-${archive}-${mode}`));
        await server.stop();
        fs.rmSync(dir, { recursive: true, force: true });
        const good = problems.length === 0 && pages >= PAGES && styles > 0;
        console.log(`${good ? 'ok' : 'FAILED'} ${site} ${archive} ${mode}: ${pages} pages, ${styles} style sheets, ${images} images`);
        for (const problem of [...new Set(problems)].slice(0, 10)) console.log(`   ${problem}`);
        if (good) passed++;
        else failed++;
      }
    }
  }
  await browser.close();
  console.log(`${passed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
})();

// Chromium looks at the page of `docwharf analytics report`: nothing is loaded, logged or wider than the window, whatever
// readers typed; in light, dark, on a phone and on paper.
//
// node report.cjs DOCWHARF SCREENS; needs playwright-core and a system Chromium. `.ci/extra report` calls it.

const { chromium } = require('playwright-core');
const { execFile } = require('node:child_process');
const { pathToFileURL } = require('node:url');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');

const [docwharf, screens] = process.argv.slice(2).map((p) => path.resolve(p));

// Term, searches now and before, clicks in percent, page.
const PLAUSIBLE = [
  ['webhooks', 412, 371, 82, '/guides/webhooks'], ['api keys', 355, 342, 91.5, '/reference/authentication'],
  ['rate limits', 298, 214, 74.2, '/reference/rate-limits'], ['pagination', 211, 219, 88.6, '/reference/pagination'],
  ['webhook retry', 174, 61, 0, null], ['sso', 163, 158, 12.3, '/guides/users'],
  ['self-hosted', 149, 66, 9.4, '/pricing'], ['python sdk', 141, 133, 79.4, '/sdks/python'],
  ['changelog', 118, 140, 95.8, '/changelog'], ['idempotency', 97, 31, 63.9, '/reference/idempotency'],
  ['terraform provider', 88, 0, 0, null], ['export to csv', 71, 64, 0, null], ['error 422', 66, 70, 15.2, '/reference/errors'],
  ['audit log', 58, 22, 0, null], ['scim', 52, 49, 0, null], ['invoice', 47, 40, 17, '/billing'],
  ['openapi', 44, 51, 70.5, '/reference/openapi'], ['dark mode', 31, 28, 0, null], ['rotate key', 29, 12, 6.9, '/reference/authentication'],
  ['ip allowlist', 26, 25, 0, null], ['postman', 22, 37, 81.8, '/sdks/postman'], ['go sdk', 21, 20, 71.4, '/sdks/go'],
  ['webhook signature', 19, 17, 89.5, '/guides/webhooks'], ['sandbox', 17, 30, 58.8, '/guides/sandbox'], ['データ保持期間', 14, 3, 0, null],
  ['facturación', 12, 9, 16.7, '/billing'], ['حذف الحساب', 9, 0, 0, null], ['graphql', 8, 26, 0, null], ['sla', 6, 6, 50, '/sla'],
  ['soap', 0, 18, 0, null], ['xml export', 0, 11, 0, null], ['v1 api', 0, 7, 42.9, '/reference/v1'],
];
const HOSTILE = [
  '<script>document.title = "taken"; console.log("ran")</script>', '</style></title><img src="http://127.0.0.1:1/x.png" onerror="console.log(1)">',
  '" onmouseover="console.log(2)" style="background:url(http://127.0.0.1:1/y)', '<link rel=stylesheet href=http://127.0.0.1:1/z>',
  '<meta http-equiv=refresh content="0;url=http://127.0.0.1:1/">', '\u001b[2J\u001b[31mred\u0007', '\u202egnp.exe', '', 'x'.repeat(20000),
  'W'.repeat(300), '潮'.repeat(300), '&lt;b&gt;', '@import url(http://127.0.0.1:1/c.css)', 'javascript:alert(1)',
].map((term, i) => [term, 60 - 3 * i, i, i % 3 ? 11 * (i % 9) : 0, i % 3 ? `/${term}` : null]);

function api(rows) {
  const server = http.createServer((request, response) => {
    const url = new URL(request.url, 'http://api.invalid');
    const column = url.searchParams.get('dateFrom') === '2026-10-01' ? 1 : 2;
    const all = rows.filter((row) => row[column] > 0).sort((a, b) => b[column] - a[column]);
    const from = Number(url.searchParams.get('cursor') || 0);
    const to = from + Number(url.searchParams.get('limit'));
    response.setHeader('Content-Type', 'application/json');
    response.end(JSON.stringify({
      searches: all.slice(from, to).map((row) => ({ searchQuery: row[0], hits: row[column], ctr: row[3], topClickedPage: row[4], lastSearchedAt: '2026-10-31T18:00:00Z' })),
      totalSearches: all.reduce((sum, row) => sum + row[column], 0),
      nextCursor: to < all.length ? String(to) : null,
    }));
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

async function report(dir, name, rows) {
  const server = await api(rows);
  const config = path.join(dir, `${name}.toml`);
  fs.writeFileSync(path.join(dir, 'key'), 'dwk_0123456789abcdef', { mode: 0o600 });
  fs.writeFileSync(config, `[api]\nbaseUrl = "http://127.0.0.1:${server.address().port}/v1"\ndomain = "docs.example.com"\n`
    + `projectId = "harbour-docs"\nkeyFile = "key"\n[store]\npath = "store-${name}"\n`);
  const page = path.join(dir, `${name}.html`);
  const args = ['analytics', 'report', '--from', '2026-10-01', '--to', '2026-11-01', '--compare', 'previous', '--html', page, '--config', config];
  const text = await new Promise((resolve, reject) => {
    execFile(docwharf, args, (error, out, err) => (error ? reject(new Error(err || String(error))) : resolve(out)));
  });
  server.close();
  fs.writeFileSync(path.join(screens, `report-${name}.txt`), text);
  fs.copyFileSync(page, path.join(screens, `report-${name}.html`));
  return page;
}

(async () => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-report-'));
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  const wrong = [];
  for (const [name, rows] of [['plausible', PLAUSIBLE], ['hostile', HOSTILE], ['empty', []]]) {
    const file = await report(dir, name, rows);
    const url = pathToFileURL(file).href;
    for (const [look, width, colorScheme, media] of [['light', 1100, 'light'], ['dark', 1100, 'dark'], ['phone', 390, 'light'], ['small', 320, 'dark'], ['paper', 720, 'light', 'print']]) {
      const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme, deviceScaleFactor: width < 500 ? 2 : 1 });
      const page = await context.newPage();
      const note = (what) => wrong.push(`${name}, ${look}: ${what}`);
      page.on('console', (message) => note(`logged: ${message.text()}`));
      page.on('pageerror', (error) => note(String(error)));
      page.on('dialog', (dialog) => { note('a dialog'); dialog.dismiss(); });
      page.on('request', (request) => { if (request.url() !== url) note(`loads ${request.url().slice(0, 200)}`); });
      if (media) await page.emulateMedia({ media, colorScheme });
      await page.goto(url, { waitUntil: 'networkidle' });
      const seen = await page.evaluate(() => ({
        title: document.title, scripts: document.scripts.length, wide: document.documentElement.scrollWidth - innerWidth,
        images: document.querySelectorAll('img,link,iframe,object,embed,audio,video,form,base').length,
        rows: document.querySelectorAll('tbody tr').length,
        clipped: [...document.querySelectorAll('td:not(.bar),th,dd')].filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent.slice(0, 40)),
      }));
      if (!seen.title.startsWith('Searches in harbour-docs, 2026-10-01 to 2026-10-31')) note(`its title is ${seen.title}`);
      if (seen.scripts || seen.images) note(`${seen.scripts} scripts, ${seen.images} elements that load`);
      if (seen.wide > 0) note(`${seen.wide} pixels too wide`);
      if (seen.clipped.length) note(`clipped: ${seen.clipped.join(', ')}`);
      if (name !== 'empty' && seen.rows < 20) note(`only ${seen.rows} rows`);
      await page.screenshot({ path: path.join(screens, `report-${name}-${look}.png`), fullPage: true });
      if (name === 'plausible' && look === 'paper') await page.pdf({ path: path.join(screens, 'report.pdf'), format: 'A4' });
      await context.close();
    }
  }
  await browser.close();
  fs.rmSync(dir, { recursive: true });
  if (wrong.length) {
    console.error(wrong.join('\n'));
    process.exit(1);
  }
  console.log('3 reports in 5 looks: nothing loaded, nothing logged');
})().catch((error) => { console.error(error); process.exit(1); });

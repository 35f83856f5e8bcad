// Chromium reads the site of `docwharf demo` on an air-gapped host that records: a search, a click on a result, and a
// soft navigation. Then `docwharf analytics searches`, `pages` and `report` have exactly these rows.
//
// node analytics.cjs DOCWHARF SITE; needs playwright-core and a system Chromium. `.ci/extra analytics` calls it without a
// network. The first broken promise ends it with 1.

const { chromium } = require('playwright-core');
const { execFileSync } = require('node:child_process');
const { isDeepStrictEqual } = require('node:util');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { View, endServers, eventually, part, promise, start, waitForIndex } = require('./search/view.cjs');

const [docwharf, site] = process.argv.slice(2).map((p) => path.resolve(p));
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'docwharf-analytics-'));
const config = path.join(folder, 'config.toml');

const run = (...args) => execFileSync(docwharf, [...args, '--config', config], { encoding: 'utf8' });
const rows = (command, ...args) => JSON.parse(run('analytics', command, '--format', 'json', ...args));

const readSearches = () => rows('searches').searches.map(({ searchQuery, hits, ctr, topClickedPage }) =>
  ({ searchQuery, hits, ctr, topClickedPage }));
const readViews = () => rows('pages').views;
const countsOf = (key) => Object.fromEntries(rows('pages', '--by', key).rows.map(({ key: name, count }) => [name, count]));

const has = (name, read, expected) => eventually(name, async () => read(), (found) => isDeepStrictEqual(found, expected));

async function records(browser) {
  fs.writeFileSync(config, `[staticExport]
enabled = true
bundleUrl = "bundle.zip"
[store]
path = "store"
[server]
listen = "127.0.0.1:0"
[deployment]
type = "air-gapped"
`);
  run('bundle', 'pack', site, path.join(folder, 'bundle.zip'));
  const host = await start(docwharf, ['run', '--config', config], ({ err }) => err.includes('is active'));
  // The index is there before the reader is. Such a request counts for nothing.
  await waitForIndex(host.url, 'token');
  promise('nothing is recorded yet', isDeepStrictEqual([readSearches(), readViews()], [[], []]));

  // Without a window, Chromium names itself so that it counts as a bot.
  const userAgent = `Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/${browser.version()} Safari/537.36`;
  const view = await View.open(browser, { userAgent });
  await view.visit(host.url);
  await view.openBox('Control+k');
  const { options } = await view.search('token');
  const found = new URL(options[0].href).pathname;
  await view.press('Enter');
  await view.landsOn(options[0].href);
  const clicked = [{ searchQuery: 'token', hits: 1, ctr: 1, topClickedPage: found }];
  await has('the search and the click are one row', readSearches, clicked);

  // A soft navigation to a page, and one to a place in it, which is no view.
  const soft = new URL('guides/air-gap', host.url).pathname;
  await view.run((address) => history.pushState(null, '', address), soft);
  await view.run(() => history.pushState(null, '', '#place'));
  const seen = new Map();
  for (const page of ['/', found, soft]) seen.set(page, (seen.get(page) ?? 0) + 1);
  const views = [...seen].map(([page, human]) => ({ path: page, human, ai: 0, total: human, bot: 0 }));
  const order = (a, b) => b.total - a.total || (a.path < b.path ? -1 : 1);
  await has('each page that was read has its views', () => readViews().sort(order), views.sort(order));
  await has('the visit has one entry', () => countsOf('entry'), { '/': 1 });
  promise('no other site led here, and no path was missing',
    isDeepStrictEqual([countsOf('referrer'), countsOf('notFound')], [{}, {}]));
  promise('no second search was recorded', isDeepStrictEqual(readSearches(), clicked), readSearches());

  const page = path.join(folder, 'report.html');
  // Without dates, the report ends before today.
  const day = (offset) => new Date(Date.now() + offset * 86_400_000).toISOString().slice(0, 10);
  run('analytics', 'report', '--from', day(-1), '--to', day(1), '--html', page);
  const report = fs.readFileSync(page, 'utf8');
  promise('the report has the term, with its click', />token</.test(report), report.slice(report.indexOf('<body')));
  view.wasQuiet();
  promise('nothing is loaded from elsewhere', view.outside.length === 0, view.outside);
  await view.close();
  await host.stop();
}

(async () => {
  const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox'] });
  try {
    await part('a host without a network records what its reader does', () => records(browser));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  } finally {
    await browser.close();
    endServers();
    fs.rmSync(folder, { recursive: true, force: true });
  }
})();

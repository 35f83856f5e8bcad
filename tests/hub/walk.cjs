// Three real sites through an origin: a book of mdBook and one of MkDocs, built from Git repositories, and a Next.js site that is
// crawled while `next start` serves it. Each is brought in by an agent; then origin and Next.js are stopped, and Chromium
// follows every link of what the agents serve: no answer of 400 or more, no failed request, no error in the console.
//
// node walk.cjs DOCWHARF FOLDER NEXT SCREENS: FOLDER is emptied; NEXT has an app that `next build` has built for `next
// start`. mdbook and mkdocs are on the PATH. Needs playwright-core, git and a system Chromium; `.ci/extra origin` calls it.

const { chromium } = require('playwright-core');
const { execFileSync, spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');

const [docwharf, folder, next, screens] = process.argv.slice(2).map((p) => path.resolve(p));
fs.rmSync(folder, { recursive: true, force: true });
fs.mkdirSync(folder, { recursive: true });

const where = (program) => path.dirname(fs.realpathSync(execFileSync('sh', ['-c', `command -v ${program}`]).toString().trim()));
// Its programs need what lies beside them.
const venv = path.dirname(path.dirname(execFileSync('sh', ['-c', 'command -v mkdocs']).toString().trim()));
const write = (dir, files) => {
  for (const [name, text] of Object.entries(files)) {
    fs.mkdirSync(path.dirname(path.join(dir, name)), { recursive: true });
    fs.writeFileSync(path.join(dir, name), text);
  }
};

function repository(name, files) {
  const dir = path.join(folder, name);
  write(dir, files);
  const git = (...args) => execFileSync('git', ['-c', 'user.name=Ada', '-c', 'user.email=ada@example.org', ...args], { cwd: dir, stdio: 'ignore' });
  git('init', '-b', 'main');
  git('add', '-A');
  git('commit', '-m', 'first');
}

const chapters = ['tide', 'moat', 'bridge'];
repository('book', {
  // Both themes would ask other hosts for something, which a site for closed networks does without.
  'book.toml': '[book]\ntitle = "Harbour"\n[output.html.playground]\nrunnable = false\n',
  'src/SUMMARY.md': `# Summary\n\n- [Home](home.md)\n${chapters.map((c) => `- [${c}](part/${c}.md)\n`).join('')}`,
  'src/home.md': `# Home\n\n[the tide](part/tide.md)\n\n\`\`\`rust\nfn main() {}\n\`\`\`\n`,
  ...Object.fromEntries(chapters.map((c) => [`src/part/${c}.md`, `# ${c}\n\nBack [home](../home.md).\n`])),
});
repository('mk', {
  'mkdocs.yml': 'site_name: Harbour\nsite_url: https://mk.example/\ntheme:\n  name: mkdocs\n  highlightjs: false\n',
  'docs/index.md': `# Home\n\n[the tide](part/tide.md)\n`,
  ...Object.fromEntries(chapters.map((c) => [`docs/part/${c}.md`, `# ${c}\n\nBack [home](../index.md).\n`])),
});

const freePort = () => new Promise((resolve) => {
  const server = net.createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

// Starts a program and waits until it has said what it should.
function start(program, args, said, options = {}) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const ended = new Promise((done) => child.on('exit', done));
  let out = '';
  const found = new Promise((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data) => {
        out += data;
        const match = out.match(said);
        if (match) resolve(match);
      });
    }
    ended.then((code) => reject(new Error(`${program} ${args[0]} ended with ${code}: ${out.slice(-2000)}`)));
  });
  // With whatever it has started, where it leads a group of its own.
  const stop = async () => { process.kill(options.detached ? -child.pid : child.pid, 'SIGTERM'); await ended; };
  return { found, stop };
}

async function walk(browser, name, url) {
  const wrong = [];
  const page = await (await browser.newContext()).newPage();
  page.on('console', (message) => { if (message.type() === 'error') wrong.push(`console: ${message.text()}`); });
  page.on('pageerror', (error) => wrong.push(`page: ${error}`));
  page.on('response', (response) => {
    if (response.status() >= 400) wrong.push(`${response.status()} ${new URL(response.url()).pathname}`);
  });
  page.on('requestfailed', (request) => {
    if (request.failure().errorText !== 'net::ERR_ABORTED') wrong.push(`${request.failure().errorText} ${request.url()}`);
  });
  const seen = new Set();
  const queue = [url];
  while (queue.length) {
    const next = queue.shift();
    const key = next.split('#')[0];
    if (seen.has(key)) continue;
    seen.add(key);
    await page.goto(key, { waitUntil: 'networkidle' });
    const links = await page.$$eval('a[href]', (all) => all.map((a) => a.href));
    for (const link of links) if (link.startsWith(url)) queue.push(link);
    if (seen.size === 1) await page.screenshot({ path: path.join(screens, `origin-${name}.png`) });
  }
  // And as a reader does, by clicking, where there is something to click.
  await page.goto(url, { waitUntil: 'networkidle' });
  for (const link of await page.$$('nav a')) {
    if (!(await link.isVisible().catch(() => false))) continue;
    await link.click().catch(() => {});
    await page.waitForLoadState('networkidle');
    break;
  }
  await page.context().close();
  return { pages: seen.size, wrong: [...new Set(wrong)] };
}

(async () => {
  const port = await freePort();
  const site = start('npx', ['--no-install', 'next', 'start', '-H', '127.0.0.1', '-p', String(port)], /Ready/, { cwd: next, detached: true, env: { ...process.env, SERVER: '1', EDITION: '1' } });
  await site.found;
  const project = (id, lines) => `[[organization.project]]\nid = "${id}"\ndomain = "${id}.example"\n${lines}\n`;
  write(folder, {
    'origin.toml': `[server]\nlisten = ["127.0.0.1:0"]\n[store]\npath = "state"\n[[organization]]\nid = "harbour"\n`
      + project('book', `git = "book"\nbuild = "mdbook build"\noutput = "book"\ntools = ["${where('mdbook')}"]`)
      + project('mk', `git = "mk"\nbuild = "mkdocs build --strict"\noutput = "site"\ntools = ["${venv}/bin", "${venv}"]`)
      + project('next', `crawl = "http://127.0.0.1:${port}/"`),
  });
  const config = ['--config', path.join(folder, 'origin.toml')];
  const key = execFileSync(docwharf, ['origin', 'key', 'create', 'harbour', 'agents', ...config]).toString();
  const origin = start(docwharf, ['origin', ...config], /(http:\/\/127\S+)\n/);
  const [, api] = await origin.found;
  const sites = ['book', 'mk', 'next'];
  for (const name of sites) {
    write(path.join(folder, `agent-${name}`), {
      key,
      'docwharf.toml': `[api]\nbaseUrl = "${api}v1"\ndomain = "${name}.example"\nkeyFile = "key"\n[sync]\nprobe = []\n[store]\npath = "store"\n[server]\nlisten = "127.0.0.1:0"\n`,
    });
    execFileSync(docwharf, ['sync', '--config', path.join(folder, `agent-${name}`, 'docwharf.toml')], { stdio: ['ignore', 'ignore', 'inherit'] });
  }
  await origin.stop();
  await site.stop();
  for (const [name, gone] of [['origin', Number(new URL(api).port)], ['next', port]]) {
    const answers = await new Promise((resolve) => {
      const socket = net.connect(gone, '127.0.0.1', () => { socket.destroy(); resolve(true); });
      socket.on('error', () => resolve(false));
    });
    if (answers) throw new Error(`${name} still answers`);
  }
  const browser = await chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-component-update',
      '--disable-sync', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1'],
  });
  let failed = 0;
  for (const name of sites) {
    const agent = start(docwharf, ['run', '--config', path.join(folder, `agent-${name}`, 'docwharf.toml')], /(http:\/\/127\S+)\n/);
    const [, url] = await agent.found;
    const { pages, wrong } = await walk(browser, name, url);
    console.log(`${wrong.length ? 'FAILED' : 'ok'} ${name}: ${pages} addresses, origin and source stopped`);
    for (const line of wrong.slice(0, 20)) console.log(`   ${line}`);
    failed += wrong.length + (pages < 4 ? 1 : 0);
    await agent.stop();
  }
  await browser.close();
  process.exit(failed ? 1 : 0);
})().catch((error) => { console.error(error); process.exit(1); });

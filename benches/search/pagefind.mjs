// Answers queries with the script of a Pagefind index, in Node: node pagefind.mjs BUNDLE QUERIES.json ANSWERS.json
//
// Pagefind's script is made for browsers. It gets a `fetch` that reads files, and a document that names the language,
// by which it splits queries into words. As its user interface does, the first ten results are loaded completely. The
// section of a result is the one with most matches, as there.
import { readFile, writeFile } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

const MAX_RESULTS = 10;
const [bundle, input, output] = process.argv.slice(2);
const { lang, rounds, queries } = JSON.parse(await readFile(input, 'utf8'));
const base = pathToFileURL(`${bundle}/`).href;

globalThis.fetch = async (url) => new Response(await readFile(new URL(String(url).split('?')[0])));
globalThis.document = { currentScript: null, querySelector: () => ({ getAttribute: () => lang }) };

const pagefind = await import(`${base}pagefind.js`);
await pagefind.options({ basePath: base, baseUrl: '/' });
await pagefind.init();

// The address of the section with most matches; that of the page if its text before all headings has most.
function bestUrl(page) {
    let best = null;
    for (const section of page.sub_results ?? []) {
        if (best === null || section.locations.length > best.locations.length) best = section;
    }
    return best?.url ?? page.url;
}

async function search(query) {
    const { results } = await pagefind.search(query);
    const pages = await Promise.all(results.slice(0, MAX_RESULTS).map((result) => result.data()));
    return pages.map(bestUrl);
}

const answers = queries.map(() => ({ urls: [], milliseconds: [] }));
for (let round = 0; round <= rounds; round += 1) {
    for (const [index, query] of queries.entries()) {
        const started = performance.now();
        answers[index].urls = await search(query);
        // The first round loads the files of the index.
        if (round > 0) answers[index].milliseconds.push(performance.now() - started);
    }
}
await writeFile(output, JSON.stringify(answers));

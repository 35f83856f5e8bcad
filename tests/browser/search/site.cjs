// The site on which search.cjs tries the search: pages for each look, each language and each way to open the box, and a
// page that is hostile. Nothing is inline in it, so that it works under a strict policy of its own.

const fs = require('node:fs');
const path = require('node:path');

// No script may create a policy for trusted types, so that everything is refused that would need one.
const OWN_POLICY = [
  "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
  "frame-src 'self'", "base-uri 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'",
].join('; ');

// The languages of the box: the tag of a page, and the word for a search.
const LANGUAGES = {
  en: 'Search', 'de-CH': 'Suche', fr: 'Rechercher', es: 'Buscar', 'pt-BR': 'Pesquisar', 'zh-Hans': '搜索', ja: '検索',
  'ko-KR': '검색',
};

// The ways in which a page shows itself dark or light: the attributes of `html` and of `body`, what the reader prefers,
// and whether the box must be dark.
const LOOKS = {
  'class-dark': { html: 'class="dark"', colorScheme: 'light', isDark: true },
  'class-light': { html: 'class="js light"', colorScheme: 'dark', isDark: false },
  'data-dark': { html: 'data-theme="dark"', colorScheme: 'light', isDark: true },
  'data-light': { html: 'data-theme="light"', colorScheme: 'dark', isDark: false },
  'body-dark': { body: 'data-theme="dark"', colorScheme: 'light', isDark: true },
  'scheme-dark': { html: 'id="dark-scheme"', colorScheme: 'light', isDark: true },
  'scheme-both': { html: 'id="both-schemes"', colorScheme: 'dark', isDark: true },
  'text-dark': { html: 'id="light-text"', colorScheme: 'light', isDark: true },
  'always-light': { colorScheme: 'dark', isDark: false },
};

// The number of pages that have the word `bollard`.
const BOLLARDS = 15;

const STYLES = `body { margin: 2rem; font: 1rem/1.5 sans-serif; background: #fff; color: #222 }
.dark body, [data-theme=dark] body, body[data-theme=dark] { background: #111; color: #eee }
#dark-scheme { color-scheme: dark }
#both-schemes { color-scheme: light dark }
#dark-scheme body, #both-schemes body { background: canvas; color: canvastext }
#light-text body { background: #123; color: rgb(230 230 240) }
/* Such rules of a site do not reach the box. */
a, input, button, dialog, mark { all: unset !important; color: red !important }
docwharf-search { display: none !important; position: static !important; opacity: 0 !important }
`;

// The search of the site itself: it notes everything that reaches its handlers.
const OWN_SEARCH = `window.seen = [];
const note = (event) => { window.seen.push(event.type + ' ' + event.currentTarget.nodeName); };
const types = 'click pointerdown pointerup mousedown mouseup touchstart touchend keydown focus'.split(' ');
const listen = (element) => types.forEach((type) => element.addEventListener(type, note, true));
document.querySelectorAll('#search-bar-entry, #own-field').forEach(listen);
document.addEventListener('keydown', (event) => {
  if (event.key === '/' || (event.ctrlKey && event.key === 'k')) window.seen.push('shortcut ' + event.key);
});
window.addLater = () => {
  const button = document.createElement('button');
  button.className = 'DocSearch-Button';
  button.textContent = 'Later';
  listen(button);
  document.querySelector('#place').append(button);
};
`;

const HOSTILE = '&lt;img src=x onerror="window.hacked=1"&gt;';

const page = (title, content, { lang = 'en', html = '', body = '', script = '' } = {}) => `<!doctype html>
<html lang="${lang}" ${html}>
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${title}</title><link rel="icon" href="/icon.svg"><link rel="stylesheet" href="/site.css"></head>
<body ${body}>
<nav><a href="/">Home</a> <a href="/anchors.html">How a ship lies</a></nav>
<main>
<h1 id="top">${title}</h1>
${content}
</main>
${script && `<script src="${script}" defer></script>`}
</body>
</html>
`;

function pages() {
  const all = {
    'index.html': page('Harbour', `<p>A harbour for tests of the search box.</p>
<p><input id="plain" aria-label="a field"> <textarea id="area" aria-label="an area"></textarea></p>
<div id="editable" contenteditable="true" aria-label="editable"></div>
<div id="place"></div>`, { script: '/own.js' }),
    'anchors.html': page('Ground tackle', `<p>What holds a ship in its place.</p>
<h2 id="hawser">The hawser</h2>
<p>A hawser is the thick rope by which a ship lies at the quay. It is made of hemp or of steel.</p>
<h2 id="care">Care of the hawser</h2>
<p>Wash the salt off and let the rope dry before you stow the hawser below.</p>
<h2 id="length">Length of the hawser</h2>
<p>Take three times the depth of the water as the length of the hawser in fair weather.</p>`),
    'own.html': page('Own search', `<p><button id="search-bar-entry" type="button">Search the docs</button>
<input id="own-field" data-docwharf-search aria-label="own search"></p>
<p>This page brings triggers of its own.</p>
<div id="place"></div>`, { script: '/own.js' }),
    'twice.html': page('Twice', '<p>This page loads the script by hand, too.</p>', { script: '/_docwharf/search.js' }),
    'frame.html': page('Frame', `<p>This page has another one in a frame.</p>
<iframe src="/index.html" title="Harbour"></iframe>`),
    'rtl.html': page('مرفأ', '<p>الحبل السميك hawser الذي تربط به السفينة إلى الرصيف.</p>', {
      lang: 'ar', html: 'dir="rtl"',
    }),
    'hostile.html': page(`${HOSTILE} capstan`, `<p>A capstan turns. ${HOSTILE} &lt;/a&gt; capstan&#x202e;</p>
<h2 id="&quot;&gt;&lt;b&gt;">&lt;script&gt;window.hacked=2&lt;/script&gt; capstan&#x202e;&#x200b;</h2>
<p>The capstan is &lt;style&gt;*{display:none}&lt;/style&gt; here: javascript:alert(1)</p>
<pre>&lt;b&gt;capstan&lt;/b&gt;</pre>`),
  };
  for (let number = 1; number <= BOLLARDS; number++) {
    const text = `Bollard ${number} stands at berth ${number}, ${number * 12} metres from the light.`;
    all[`quay/${number}.html`] = page(`Berth ${number}`, `<p>${text}</p>`);
  }
  for (const [lang, word] of Object.entries(LANGUAGES)) {
    all[`lang/${lang}.html`] = page(`${lang} ${word}`, `<p>hawser ${word} 係留索 ${lang}</p>`, { lang });
  }
  for (const [name, { html, body }] of Object.entries(LOOKS)) {
    all[`look/${name}.html`] = page(`Look ${name}`, `<p>A page that looks ${name}.</p>`, { html, body });
  }
  return all;
}

// Writes the site into a folder, and returns the folder. With `hasPolicy`, its pages have OWN_POLICY.
function writeSite(folder, hasPolicy) {
  const icon = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4"/></svg>\n';
  // The search page has no icon of its own, so that browsers look for `favicon.ico`.
  const files = { ...pages(), 'site.css': STYLES, 'own.js': OWN_SEARCH, 'icon.svg': icon, 'favicon.ico': icon };
  if (hasPolicy) files._headers = `/*\n  Content-Security-Policy: ${OWN_POLICY}\n`;
  for (const [name, text] of Object.entries(files)) {
    const file = path.join(folder, name);
    fs.mkdirSync(path.dirname(file), { recursive: true });
    fs.writeFileSync(file, text);
  }
  return folder;
}

module.exports = { BOLLARDS, LANGUAGES, LOOKS, writeSite };

// The search box of docwharf, served as BASE/_docwharf/search.js. The server replaces the object behind SETTINGS, for
// example by {"selectors": ["#search"], "button": true}, and the function behind EVENTS by reader_events.js. So that
// strict policies allow the box, it parses no text as HTML and has neither style elements nor style attributes.
(() => {
  'use strict';
  const script = document.currentScript;
  const LOADED = Symbol.for('docwharf.search');
  if (!script || window !== window.top || window[LOADED] || !window.HTMLDialogElement) return;
  window[LOADED] = true;

  const settings = /*SETTINGS*/{};
  const folder = new URL('.', script.src);
  const INPUT_DELAY_MS = 120, SLOW_MS = 500, TIMEOUT_MS = 10000, CHECK_DELAY_MS = 250, LOAD_TIMEOUT_MS = 3000;
  const MAX_BUSY_RETRIES = 5, MAX_RETRY_SECONDS = 10;
  const readerEvents = settings.events ? (/*EVENTS*/() => null)(folder) : null;

  // The page of the server has the same words; a test compares them.
  const TEXTS = /*TEXTS*/{
    "names": ["search", "close", "results", "count", "none", "busy", "failed", "building", "indexing", "partial",
      "corrected", "page", "ask"],
    "en": ["Search", "Close", "Results", "Results: {}.", "No results for “{}”.", "Searching…",
      "The search did not answer.", "The search index is being built. Please wait a moment.",
      "A new version is being indexed. These results come from the version before it.",
      "The search took too long. There may be more results.", "Results for “{}”.", "Open the search page", "Ask AI"],
    "de": ["Suche", "Schließen", "Ergebnisse", "Ergebnisse: {}.", "Keine Ergebnisse für „{}“.", "Suche läuft…",
      "Die Suche hat nicht geantwortet.", "Der Suchindex wird erstellt. Bitte einen Moment warten.",
      "Eine neue Version wird indexiert. Diese Ergebnisse stammen aus der Version davor.",
      "Die Suche hat zu lange gedauert. Es kann weitere Ergebnisse geben.", "Ergebnisse für „{}“.",
      "Suchseite öffnen", "KI fragen"],
    "fr": ["Rechercher", "Fermer", "Résultats", "Résultats : {}.", "Aucun résultat pour « {} ».",
      "Recherche en cours…", "La recherche n’a pas répondu.",
      "L’index de recherche est en cours de création. Veuillez patienter un instant.",
      "Une nouvelle version est en cours d’indexation. Ces résultats proviennent de la version précédente.",
      "La recherche a pris trop de temps. Il peut y avoir d’autres résultats.", "Résultats pour « {} ».",
      "Ouvrir la page de recherche", "Demander à l’IA"],
    "es": ["Buscar", "Cerrar", "Resultados", "Resultados: {}.", "No hay resultados para «{}».", "Buscando…",
      "La búsqueda no ha respondido.", "Se está creando el índice de búsqueda. Espere un momento.",
      "Se está indexando una nueva versión. Estos resultados proceden de la versión anterior.",
      "La búsqueda ha tardado demasiado. Puede haber más resultados.", "Resultados para «{}».",
      "Abrir la página de búsqueda", "Preguntar a la IA"],
    "pt": ["Pesquisar", "Fechar", "Resultados", "Resultados: {}.", "Nenhum resultado para “{}”.",
      "Pesquisa em andamento…", "A pesquisa não respondeu.",
      "O índice de pesquisa ainda não está pronto. Aguarde um momento.",
      "A indexação de uma nova versão está em andamento. Estes resultados são da versão anterior.",
      "A pesquisa demorou demais. Pode haver mais resultados.", "Resultados para “{}”.",
      "Abrir a página de pesquisa", "Perguntar à IA"],
    "zh": ["搜索", "关闭", "搜索结果", "搜索结果：{} 条。", "没有找到与“{}”相关的结果。", "正在搜索…", "搜索没有响应。", "正在建立搜索索引，请稍候。",
      "正在为新版本建立索引，当前结果来自上一个版本。", "搜索时间过长，可能还有更多结果。", "以下是“{}”的结果。", "打开搜索页面", "询问 AI"],
    "ja": ["検索", "閉じる", "検索結果", "検索結果: {} 件。", "「{}」に一致する結果はありません。", "検索中…", "検索の応答がありません。",
      "検索インデックスを作成しています。しばらくお待ちください。",
      "新しいバージョンのインデックスを作成中です。前のバージョンの結果を表示しています。",
      "検索に時間がかかりすぎました。ほかにも結果がある可能性があります。", "「{}」の検索結果です。", "検索ページを開く", "AI に質問"],
    "ko": ["검색", "닫기", "검색 결과", "검색 결과: {}개.", "“{}”에 대한 결과가 없습니다.", "검색 중…", "검색이 응답하지 않습니다.",
      "검색 색인을 만드는 중입니다. 잠시 기다려 주세요.", "새 버전의 색인을 만드는 중입니다. 이전 버전의 결과를 표시합니다.",
      "검색 시간이 너무 길었습니다. 결과가 더 있을 수 있습니다.", "“{}”에 대한 결과입니다.", "검색 페이지 열기", "AI에게 질문"]
  }/*END*/;

  // A selector that this browser does not know must not disable the others. Nor must one that does not end, such as
  // `[title="`, which would include the others if they were joined.
  const selectors = settings.selectors.filter((selector) => {
    try {
      return !document.createDocumentFragment().querySelector(selector);
    } catch {
      return false;
    }
  });
  const isTrigger = (node) => node instanceof Element && selectors.some((selector) => node.matches(selector));
  const firstTrigger = () => selectors.reduce((found, selector) => found || document.querySelector(selector), null);

  const texts = {};
  let host, box, openButton, dialog, input, askButton, closeButton, list, words, status, pageLink;
  // The panel for questions, once the reader has opened it.
  let panel, isPanelLoading = false;
  let options = [], active = -1, chosen = false;
  let counter = 0, request, timer, busyRetries = 0;
  // The text whose results are listed. The input has another one while an answer is awaited.
  let listedText = '';
  // How the first result opens when it comes: `here`, in a `tab`, or not at all.
  let opening = '';
  let pressedBackdrop = false;
  // The element that the reader opened the box with.
  let opener = null;

  const make = (name, attributes = {}, ...children) => {
    const element = document.createElement(name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    element.append(...children);
    return element;
  };
  const fill = (text, value) => text.replace('{}', () => value);
  const typedText = () => input.value.trim();
  // Some pages write `_` for `-`.
  const pageLanguage = () => (document.documentElement.lang || '').replace(/_/g, '-');

  // Answers JSON for the box, and the search page for a reader who follows it.
  const searchAddress = (text) => {
    const url = new URL('search', folder);
    if (text) url.searchParams.set('q', text);
    if (/^[a-z]{2,8}(-[a-z\d]{1,8})*$/i.test(pageLanguage())) url.searchParams.set('lang', pageLanguage());
    return url.href;
  };

  // ---- Results ----

  // The words around a match keep the browser from an earlier one. If it finds no such text, it goes to the anchor.
  const textDirective = (text, [start, length], hasAnchor) => {
    const before = text.slice(0, start), after = text.slice(start + length);
    const head = before.match(/[\p{L}\p{M}\p{N}_]*$/u)[0], tail = after.match(/^[\p{L}\p{M}\p{N}_]*/u)[0];
    const prefix = before.slice(0, start - head.length).match(/(?:[^\s…]+[^\S\n]+){0,3}[^\s…]*$/)[0].trim();
    const suffix = after.slice(tail.length).match(/^[^\s…]*(?:[^\S\n]+[^\s…]+){0,3}/)[0].trim();
    if (hasAnchor && !prefix && !suffix) return '';
    const encode = (part) => encodeURIComponent(part).replace(/-/g, '%2D');
    const match = encode(head + text.slice(start, start + length) + tail);
    return ':~:text=' + (prefix && encode(prefix) + '-,') + match + (suffix && ',-' + encode(suffix));
  };

  const resultAddress = ({ url, excerpt, marks }) => {
    const target = new URL(url, folder);
    if (target.origin !== folder.origin) return null;
    if ('fragmentDirective' in document && marks.length) {
      const directive = textDirective(excerpt, marks[0], target.hash);
      if (directive) target.hash += directive;
    }
    return target.href;
  };

  const markedExcerpt = (text, marks) => {
    const nodes = [];
    let end = 0;
    for (const [start, length] of marks) {
      nodes.push(text.slice(end, start), make('mark', {}, text.slice(start, start + length)));
      end = start + length;
    }
    return make('span', { class: 'excerpt' }, ...nodes, text.slice(end));
  };

  const addOption = (result, lang, path, kind) => {
    const href = resultAddress(result);
    if (!href) return;
    const option = make('a', {
      role: 'option', id: `option-${options.length}`, class: kind, href, dir: 'auto', lang, tabindex: -1,
      'aria-selected': false,
    }, make('span', { class: 'title' }, result.title || result.url));
    if (path.length) option.append(make('span', { class: 'path' }, path.join(' › ')));
    if (result.excerpt) option.append(markedExcerpt(result.excerpt, result.marks));
    options.push(option);
  };

  const activate = (index) => {
    options[active]?.setAttribute('aria-selected', false);
    active = index;
    const option = options[index];
    if (!option) return input.removeAttribute('aria-activedescendant');
    option.setAttribute('aria-selected', true);
    input.setAttribute('aria-activedescendant', option.id);
  };

  const openOption = (option, place) => {
    if (option && place !== 'tab') return option.click();
    readerEvents?.sendSearch(option);
    if (option) window.open(option.href, '_blank', 'noopener');
  };

  const tell = (words) => {
    const text = words.filter(Boolean).join(' ');
    // Screen readers read a region again when its text is set again.
    if (status.textContent !== text) status.textContent = text;
    pageLink.href = searchAddress(typedText());
    pageLink.hidden = !text;
  };

  const listResults = (text, results) => {
    activate(-1);
    options = [];
    for (const result of results) {
      addOption(result, result.lang || '', result.section.filter((heading) => heading !== result.title), 'result');
      for (const section of result.sections) addOption(section, result.lang || '', [], 'section');
    }
    list.replaceChildren(...options);
    list.scrollTop = 0;
    list.hidden = !options.length;
    input.setAttribute('aria-expanded', !list.hidden);
    listedText = text;
    chosen = false;
    if (options.length) activate(0);
  };

  const showAnswer = (text, answer) => {
    listResults(text, answer.results);
    // Of a part of the results, the number is not known.
    if (answer.total || !answer.partial) readerEvents?.showResults(text, answer.total);
    tell([
      answer.corrected && fill(texts.corrected, answer.corrected),
      answer.total ? fill(texts.count, answer.total) : fill(texts.none, text),
      answer.indexing && texts.indexing,
      answer.partial && texts.partial,
    ]);
    if (opening) openOption(options[0], opening);
    opening = '';
  };

  // ---- Requests ----

  const stopSearch = () => {
    counter++;
    clearTimeout(timer);
    request?.abort();
  };

  // Only the newest request may change the box; `counter` tells late answers to older ones.
  async function search() {
    stopSearch();
    const id = counter, text = typedText(), current = request = new AbortController();
    const slow = setTimeout(() => tell([texts.busy]), SLOW_MS);
    const deadline = setTimeout(() => current.abort(), TIMEOUT_MS);
    let response, answer;
    try {
      response = await fetch(searchAddress(text), { signal: current.signal, headers: { Accept: 'application/json' } });
      answer = await response.json();
    } catch { /* `answer` stays undefined. */ }
    clearTimeout(slow);
    clearTimeout(deadline);
    if (id !== counter) return;
    if (response?.ok && answer?.results) return showAnswer(text, answer);
    listResults('', []);
    const isBuilding = answer?.indexing, seconds = response?.status === 503 && response.headers.get('Retry-After');
    // Without this field, the server expects no other answer soon.
    if (seconds > 0 && seconds <= MAX_RETRY_SECONDS && (isBuilding || busyRetries++ < MAX_BUSY_RETRIES)) {
      tell([isBuilding ? texts.building : texts.busy]);
      timer = setTimeout(search, 1000 * seconds);
    } else {
      tell([texts.failed]);
      opening = '';
    }
  }

  const scheduleSearch = (delay) => {
    stopSearch();
    readerEvents?.changeText(typedText());
    busyRetries = 0;
    opening = '';
    chosen = false;
    if (typedText()) {
      timer = setTimeout(search, delay);
    } else {
      listResults('', []);
      tell([]);
    }
  };

  // ---- Appearance ----

  const isDark = () => {
    const { body, documentElement: html } = document, { color, colorScheme } = getComputedStyle(body);
    const theme = `${html.className} ${html.dataset.theme} ${body.className} ${body.dataset.theme}`
      .match(/(?:^|\s)(dark|light)(?!\S)/) || colorScheme.match(/^(dark|light)( only)?$/);
    if (theme) return theme[1] === 'dark';
    // Light text is on a dark ground. Notations other than `rgb` begin with a lightness.
    const [first, green, blue] = color.match(/\b[\d.]+/g) || [0];
    return /^rgb/.test(color) ? first * 0.3 + green * 0.59 + blue * 0.11 > 128 : first > (first > 1 ? 50 : 0.5);
  };

  // The language, direction and theme of a page can change at any time.
  const matchPage = () => {
    let language = pageLanguage().split('-')[0].toLowerCase();
    if (!/^(de|fr|es|pt|zh|ja|ko)$/.test(language)) language = 'en';
    TEXTS.names.forEach((name, index) => { texts[name] = TEXTS[language][index]; });
    box.lang = language;
    box.dir = getComputedStyle(document.body).direction;
    box.classList.toggle('dark', isDark());
    openButton.firstChild.lastChild.data = texts.search;
    dialog.setAttribute('aria-label', texts.search);
    input.placeholder = texts.search;
    input.setAttribute('aria-label', texts.search);
    closeButton.setAttribute('aria-label', texts.close);
    list.setAttribute('aria-label', texts.results);
    pageLink.textContent = texts.page;
    if (askButton) askButton.textContent = texts.ask;
    panel?.setLanguage(language, pageLanguage());
  };

  // ---- Questions that a model answers ----

  const showPanel = (isShown) => {
    panel.element.hidden = !isShown;
    words.hidden = list.hidden = input.hidden = askButton.hidden = isShown;
    if (isShown) return panel.open(typedText());
    panel.stop();
    list.hidden = !options.length;
    input.focus();
  };

  const openPanel = async () => {
    if (isPanelLoading) return;
    stopSearch();
    if (!panel) {
      isPanelLoading = true;
      try {
        const { createPanel } = await import(new URL('ask.js', folder).href);
        panel = createPanel({
          make, folder, maxQuestion: settings.ask, follow: handleOption, close: () => showPanel(false),
        });
      } catch {
        return tell([texts.failed]);
      } finally {
        isPanelLoading = false;
      }
      host.shadowRoot.append(make('link', { rel: 'stylesheet', href: new URL('ask.css', folder).href }));
      dialog.firstChild.append(panel.element);
      matchPage();
    }
    showPanel(true);
  };

  const build = () => {
    const icon = () => make('span', { class: 'icon', 'aria-hidden': true });
    const shortcut = /Mac|iP/.test(navigator.platform) ? '⌘K' : 'Ctrl K';
    openButton = make('button', {
      type: 'button', class: 'open', hidden: '', 'aria-haspopup': 'dialog', 'aria-keyshortcuts': 'Control+K Meta+K /',
    }, make('span', {}, icon(), ' '), make('kbd', { 'aria-hidden': true }, shortcut));
    input = make('input', {
      type: 'text', role: 'combobox', 'aria-autocomplete': 'list', 'aria-expanded': false, 'aria-controls': 'list',
      autocomplete: 'off', autocapitalize: 'none', spellcheck: false,
      enterkeyhint: 'search', maxlength: 200, dir: 'auto',
    });
    closeButton = make('button', { type: 'button', class: 'close' }, '✕');
    if (settings.ask) {
      askButton = make('button', { type: 'button', class: 'ask' });
      askButton.addEventListener('click', openPanel);
    }
    status = make('bdi', { role: 'status' });
    pageLink = make('a', { class: 'page', hidden: '' });
    // With `record`, the search page does not count a search that was sent already, and clicks on its results belong to
    // that search.
    for (const type of ['click', 'auxclick']) pageLink.addEventListener(type, () => {
      const id = readerEvents?.sendSearch();
      if (id) pageLink.href = `${searchAddress(typedText())}&record=${id}`;
    });
    list = make('div', { id: 'list', role: 'listbox', hidden: '' });
    dialog = make('dialog', { role: 'dialog', 'aria-modal': true }, make('div', { class: 'panel' },
      make('div', { class: 'bar' }, icon(), input, ...(askButton ? [askButton] : []), closeButton),
      words = make('div', { class: 'words' }, status, ' ', pageLink), list));
    box = make('div', { class: 'box' }, openButton, dialog);
    const sheet = make('link', { rel: 'stylesheet', href: new URL('search.css', folder).href });
    host = make('docwharf-search');
    const root = host.attachShadow({ mode: 'open' });
    // Nothing is visible before its style, but the input can have the focus, whatever the style of the site hides.
    if (root.adoptedStyleSheets) {
      const transparent = new CSSStyleSheet();
      transparent.replaceSync(':host { display: block !important } * { opacity: 0 }');
      root.adoptedStyleSheets = [transparent];
      sheet.onload = sheet.onerror = () => { root.adoptedStyleSheets = []; };
    }
    root.append(sheet, box);
    listenInBox();
  };

  // React accepts further elements at the end of the body while it hydrates a document. A site that replaces its body
  // removes the host; the next call puts it back.
  const attach = () => {
    if (!host) build();
    if (!host.isConnected) {
      document.body.append(host);
      if (dialog.open) {
        // An open dialog that was removed is modal no longer.
        dialog.close();
        dialog.showModal();
        input.focus();
      }
    }
    matchPage();
  };

  // ---- Opening and closing ----

  const open = (trigger) => {
    if (!document.body) return;
    attach();
    opener = trigger || null;
    if (!dialog.open) dialog.showModal();
    if (panel && !panel.element.hidden) return panel.open('');
    input.focus();
    input.select();
    if (typedText()) scheduleSearch(0);
  };

  const handleOption = (event) => {
    const option = event.target.closest('a');
    // The middle button has the number 1.
    if (!option || event.button > 1) return;
    if (options.includes(option)) readerEvents?.sendSearch(option);
    if (event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    // A place in this page gets the focus itself.
    opener = null;
    dialog.close();
  };

  const openResult = (place) => {
    if (chosen || !typedText() || typedText() === listedText) return openOption(options[active], place);
    opening = place;
    busyRetries = 0;
    search();
  };

  const listenInBox = () => {
    openButton.addEventListener('click', () => open(openButton));
    closeButton.addEventListener('click', () => dialog.close());
    input.addEventListener('input', (event) => {
      if (!isComposing(event)) scheduleSearch(INPUT_DELAY_MS);
    });
    input.addEventListener('compositionstart', () => {
      if (!awaitsComposition()) return;
      stopSearch();
      readerEvents?.changeText(typedText());
    });
    input.addEventListener('compositionend', () => scheduleSearch(INPUT_DELAY_MS));
    for (const type of ['click', 'auxclick']) list.addEventListener(type, handleOption);
    dialog.addEventListener('mousedown', (event) => {
      pressedBackdrop = event.target === dialog;
      // The focus stays in the input.
      if (event.target !== input && !event.target.closest('.ask-panel')) event.preventDefault();
    });
    dialog.addEventListener('click', (event) => {
      if (event.target === dialog && pressedBackdrop) dialog.close();
    });
    dialog.addEventListener('close', () => {
      if (dialog.open) return;
      stopSearch();
      panel?.stop();
      readerEvents?.closeBox();
      // The dialog gives the focus back itself, but some browsers do not focus a button that is clicked. This event comes
      // later: by then the reader may have moved the focus.
      const target = opener?.isConnected ? opener : opener && firstTrigger();
      const focused = document.activeElement;
      if (!focused || focused === document.body || focused === host) target?.focus({ preventScroll: true });
      opener = null;
    });
  };

  // ---- Events of the page ----

  // On Android, keyboards compose the words of every language. The end is awaited only in languages that need it.
  const awaitsComposition = () => !/Android/.test(navigator.userAgent) ||
    [pageLanguage(), ...navigator.languages].some((tag) => /^(zh|ja|ko)/i.test(tag));
  const isComposing = (event) => (event.isComposing || event.keyCode === 229) && awaitsComposition();

  const isEditable = (node) => node instanceof HTMLElement && (node.isContentEditable || node.matches(
    'textarea, select, [role=textbox], [role=searchbox], [role=combobox], ' +
    'input:not([type=button], [type=checkbox], [type=radio], [type=submit])'));

  const findTrigger = (event) => dialog?.open ? undefined : event.composedPath().find(isTrigger);

  const take = (event) => {
    event.preventDefault();
    event.stopImmediatePropagation();
  };

  const handleKeyInBox = (event, key) => {
    if (key === 'Escape') {
      event.preventDefault();
      if (!event.isComposing && event.keyCode !== 229) dialog.close();
      return;
    }
    panel?.handleKey(event);
    if (isComposing(event) || host.shadowRoot.activeElement !== input) return;
    if (key === 'ArrowDown' || key === 'ArrowUp') {
      event.preventDefault();
      if (!options.length) return;
      activate((active + (key === 'ArrowDown' ? 1 : -1) + options.length) % options.length);
      options[active].scrollIntoView({ block: 'nearest' });
      chosen = true;
      opening = '';
    } else if (key === 'Enter') {
      event.preventDefault();
      if (!event.repeat) openResult(event.ctrlKey || event.metaKey ? 'tab' : 'here');
    }
  };

  const handleKey = (event) => {
    const isOpen = dialog?.open;
    // The shortcuts of the site must not act on what is typed; to them, the target is no input.
    if (isOpen) event.stopImmediatePropagation();
    if (event.type !== 'keydown') return;
    const key = event.key || '';
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    // On keyboards with another script, the key has another character.
    const isK = key.toLowerCase() === 'k' || (event.code === 'KeyK' && key > '~');
    if (isK && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey) {
      take(event);
      if (isOpen) dialog.close();
      else if (!event.repeat) open();
    } else if (isOpen) {
      handleKeyInBox(event, key);
    } else if (!hasModifier && !event.isComposing) {
      const target = event.composedPath()[0], trigger = findTrigger(event);
      // The input of a closed box can have the focus until the browser renders the page again.
      const isText = isEditable(target) && target !== input;
      if (trigger && (key === 'Enter' || key === ' ') || key === '/' && !isText) {
        take(event);
        open(trigger);
      } else if (trigger && (key.length === 1 || event.keyCode === 229) && isEditable(target)) {
        // The focus moves before the character is inserted or composed.
        event.stopImmediatePropagation();
        open(trigger);
      }
    }
  };

  const handlePointer = (event) => {
    const trigger = findTrigger(event);
    if (!trigger || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.stopImmediatePropagation();
    if (event.type === 'click') {
      event.preventDefault();
      open(trigger);
    } else if (event.type === 'mousedown' && isEditable(event.composedPath()[0])) {
      event.preventDefault();
    }
  };

  // The capture phase of `window` comes before the handlers of the site. Elements that appear later need no handler.
  for (const type of ['keydown', 'keypress', 'keyup']) window.addEventListener(type, handleKey, true);
  for (const type of ['click', 'pointerdown', 'pointerup', 'mousedown', 'mouseup', 'touchstart', 'touchend']) {
    window.addEventListener(type, handlePointer, true);
  }
  for (const type of ['focus', 'focusin']) window.addEventListener(type, handlePointer, true);

  // ---- The button, and the place of the host ----

  let checkTimer = 0;
  const observer = new MutationObserver(() => checkLater());

  const check = () => {
    checkTimer = 0;
    if (!document.body) return;
    // Both elements may be new ones. Observing an element again changes nothing.
    for (const node of [document.documentElement, document.body]) {
      observer.observe(node, { attributes: true, attributeFilter: ['class', 'data-theme', 'dir', 'lang', 'style'] });
    }
    const needsButton = settings.button && !firstTrigger();
    if (needsButton || (host && (dialog.open || !host.isConnected))) attach();
    if (host) openButton.hidden = !needsButton;
  };
  const checkLater = () => {
    checkTimer = checkTimer || setTimeout(check, CHECK_DELAY_MS);
  };
  const watch = () => {
    observer.observe(document, { childList: true, subtree: true });
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', checkLater);
    checkLater();
  };
  // The end of loading may never come, if a host of another origin does not respond. To watch twice changes nothing.
  window.addEventListener('load', watch);
  setTimeout(watch, document.readyState === 'complete' ? 0 : LOAD_TIMEOUT_MS);
})();

// The panel of the search box in which a model answers questions, served as BASE/_docwharf/ask.js. The box imports it
// when its reader first opens the panel. The text of a model is not trusted: it becomes paragraphs, lists, code and
// emphasis as nodes, never images, and its only links are citations, whose addresses come from the server.

const TEXTS = /*TEXTS*/{
  "names": ["question", "ask", "stop", "back", "answer", "sources", "busy", "done", "stopped", "note", "nothing",
    "uncited", "often", "later", "failed", "cut"],
  "en": ["Your question", "Ask", "Stop", "Back to the search", "Answer", "Sources", "The model is answering…",
    "The answer is complete.", "Stopped.", "A language model wrote this answer. It may be wrong: check the sources.",
    "The documentation has nothing about this.",
    "The model gave no answer that the documentation supports. These pages may help.",
    "Too many questions. Please try again later.", "Other questions are being answered. Please try again in a moment.",
    "The question could not be answered.", "The answer was cut because it became too long."],
  "de": ["Ihre Frage", "Fragen", "Anhalten", "Zurück zur Suche", "Antwort", "Quellen", "Das Modell antwortet…",
    "Die Antwort ist vollständig.", "Angehalten.",
    "Ein Sprachmodell hat diese Antwort geschrieben. Sie kann falsch sein: Prüfen Sie die Quellen.",
    "Die Dokumentation enthält nichts dazu.",
    "Das Modell gab keine Antwort, die die Dokumentation belegt. Diese Seiten helfen vielleicht weiter.",
    "Zu viele Fragen. Bitte später noch einmal versuchen.",
    "Andere Fragen werden gerade beantwortet. Bitte gleich noch einmal versuchen.",
    "Die Frage konnte nicht beantwortet werden.", "Die Antwort wurde gekürzt, weil sie zu lang wurde."],
  "fr": ["Votre question", "Demander", "Arrêter", "Retour à la recherche", "Réponse", "Sources",
    "Le modèle répond…", "La réponse est complète.", "Arrêté.",
    "Un modèle de langage a écrit cette réponse. Elle peut être fausse : vérifiez les sources.",
    "La documentation ne contient rien à ce sujet.",
    "Le modèle n’a donné aucune réponse étayée par la documentation. Ces pages peuvent vous aider.",
    "Trop de questions. Veuillez réessayer plus tard.",
    "D’autres questions sont en cours. Veuillez réessayer dans un instant.",
    "La question n’a pas pu recevoir de réponse.", "La réponse a été coupée, car elle devenait trop longue."],
  "es": ["Su pregunta", "Preguntar", "Detener", "Volver a la búsqueda", "Respuesta", "Fuentes",
    "El modelo está respondiendo…", "La respuesta está completa.", "Detenido.",
    "Un modelo de lenguaje ha escrito esta respuesta. Puede ser incorrecta: compruebe las fuentes.",
    "La documentación no contiene nada sobre esto.",
    "El modelo no dio ninguna respuesta que la documentación respalde. Estas páginas pueden ayudar.",
    "Demasiadas preguntas. Inténtelo de nuevo más tarde.",
    "Se están respondiendo otras preguntas. Inténtelo de nuevo en un momento.",
    "No se pudo responder a la pregunta.", "La respuesta se cortó porque era demasiado larga."],
  "pt": ["Sua pergunta", "Perguntar", "Parar", "Voltar à pesquisa", "Resposta", "Fontes",
    "O modelo está respondendo…", "A resposta está completa.", "Parado.",
    "Um modelo de linguagem escreveu esta resposta. Ela pode estar errada: verifique as fontes.",
    "A documentação não contém nada sobre isto.",
    "O modelo não deu nenhuma resposta apoiada pela documentação. Estas páginas podem ajudar.",
    "Perguntas demais. Tente novamente mais tarde.",
    "Outras perguntas estão sendo respondidas. Tente novamente em instantes.",
    "Não foi possível responder à pergunta.", "A resposta foi cortada porque ficou longa demais."],
  "zh": ["您的问题", "提问", "停止", "返回搜索", "回答", "来源", "模型正在回答…", "回答已完成。", "已停止。",
    "此回答由语言模型撰写，可能有误，请核对来源。", "文档中没有相关内容。",
    "模型没有给出有文档依据的回答。以下页面可能有帮助。", "提问过于频繁，请稍后再试。",
    "正在回答其他问题，请稍后再试。", "无法回答该问题。", "回答过长，已被截断。"],
  "ja": ["質問", "質問する", "停止", "検索に戻る", "回答", "出典", "モデルが回答しています…", "回答が完了しました。",
    "停止しました。", "この回答は言語モデルが作成しました。誤りを含む場合があるため、出典を確認してください。",
    "ドキュメントに該当する内容がありません。",
    "モデルはドキュメントに基づく回答を返しませんでした。次のページが参考になるかもしれません。",
    "質問が多すぎます。しばらくしてからもう一度お試しください。",
    "ほかの質問に回答しています。しばらくしてからもう一度お試しください。", "質問に回答できませんでした。",
    "回答が長すぎるため、途中で切れています。"],
  "ko": ["질문", "질문하기", "중지", "검색으로 돌아가기", "답변", "출처", "모델이 답변하는 중…", "답변이 완료되었습니다.",
    "중지했습니다.", "이 답변은 언어 모델이 작성했습니다. 틀릴 수 있으니 출처를 확인하세요.",
    "문서에 관련 내용이 없습니다.", "모델이 문서에 근거한 답변을 하지 않았습니다. 다음 페이지가 도움이 될 수 있습니다.",
    "질문이 너무 많습니다. 나중에 다시 시도해 주세요.", "다른 질문에 답변하는 중입니다. 잠시 후 다시 시도해 주세요.",
    "질문에 답변하지 못했습니다.", "답변이 너무 길어 잘렸습니다."]
}/*END*/;

// ---- The text of the model as nodes ----

const CODE_SPAN = /(`+)(?!`)([^\n]*?[^`\n])\1(?!`)/g;
const CITATION = /\[(\d{1,4}(?:, ?\d{1,4})*)\]/g;
const STRONG = /\*\*(?=\S)([^\n]*?\S)\*\*/g;
const EMPHASIS = /\*(?=[^\s*])([^*\n]*[^\s*])\*/g;
// Code comes first, because nothing else has a meaning in it.
const INLINE = [['code', CODE_SPAN], ['cite', CITATION], ['strong', STRONG], ['em', EMPHASIS]];
const MAX_INLINE_DEPTH = 4, MAX_LIST_DEPTH = 8;
// The rest of a longer answer is not shown.
const MAX_ANSWER_CHARS = 65536;

// Appends a text with its code, citations and emphasis. Each pattern is looked for again only behind its last match.
const appendInline = (parent, text, view, depth = 0) => {
  const candidates = depth < MAX_INLINE_DEPTH
    ? INLINE.map(([kind, pattern]) => ({ kind, pattern: new RegExp(pattern), match: undefined })) : [];
  let at = 0;
  for (;;) {
    let found = null;
    for (const candidate of candidates) {
      if (candidate.match === undefined || candidate.match?.index < at) {
        candidate.pattern.lastIndex = at;
        candidate.match = candidate.pattern.exec(text);
      }
      if (candidate.match && (!found || candidate.match.index < found.match.index)) found = candidate;
    }
    if (!found) break;
    const { kind, match } = found;
    parent.append(text.slice(at, match.index));
    at = match.index + match[0].length;
    if (kind === 'code') {
      parent.append(view.make('code', {}, match[2].trim() || match[2]));
    } else if (kind === 'cite') {
      appendCitations(parent, match, view);
    } else {
      const element = view.make(kind);
      appendInline(element, match[1], view, depth + 1);
      parent.append(element);
    }
  }
  parent.append(text.slice(at));
};

const appendCitations = (parent, match, view) => {
  const links = match[1].split(',').map((number) => view.citationLink(Number(number))).filter(Boolean);
  // Brackets around other numbers are text.
  if (!links.length) return parent.append(match[0]);
  parent.append('[');
  links.forEach((link, index) => parent.append(index ? ', ' : '', link));
  parent.append(']');
};

const LIST_ITEM = /^(\s*)(?:([-*+])|(\d{1,9})[.)])\s+(.*)$/;
const FENCE = /^\s*(`{3,}|~{3,})(.*)$/;

// Returns the blocks of a text. A block of code that has no end yet goes to the end.
const renderBlocks = (text, view) => {
  const blocks = [], lines = text.replace(/\r\n?/g, '\n').split('\n');
  let paragraph = [], lists = [];
  const place = (node) => {
    if (lists.length) lists.at(-1).item.append(node);
    else blocks.push(node);
  };
  const endParagraph = () => {
    if (!paragraph.length) return;
    const element = view.make('p', { dir: 'auto' });
    appendInline(element, paragraph.join('\n'), view);
    place(element);
    paragraph = [];
  };
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index], fence = line.match(FENCE), item = line.match(LIST_ITEM);
    const heading = line.match(/^\s{0,3}#{1,6}\s+(.*?)\s*#*$/);
    if (fence && !(fence[1][0] === '`' && fence[2].includes('`'))) {
      endParagraph();
      if (lists.length && !/^\s/.test(line)) lists = [];
      const code = [], indent = line.match(/^\s*/)[0].length;
      const isEnd = (other) => other.trim().length >= fence[1].length && [...other.trim()].every((c) => c === fence[1][0]);
      while (++index < lines.length && !isEnd(lines[index])) {
        code.push(lines[index].replace(new RegExp(`^\\s{0,${indent}}`), ''));
      }
      place(view.make('pre', { tabindex: 0, dir: 'ltr' }, view.make('code', {}, code.join('\n'))));
    } else if (item) {
      endParagraph();
      addItem(item, lists, blocks, view);
    } else if (!line.trim()) {
      endParagraph();
    } else if (heading) {
      endParagraph();
      lists = [];
      const element = view.make('strong');
      appendInline(element, heading[1], view);
      place(view.make('p', { dir: 'auto', class: 'heading' }, element));
    } else if (/^\s*\|/.test(line)) {
      endParagraph();
      const rows = [line];
      while (/^\s*\|/.test(lines[index + 1] || '')) rows.push(lines[++index]);
      place(view.make('pre', { tabindex: 0 }, rows.join('\n')));
    } else {
      // A line without indentation after an empty one ends the list.
      if (lists.length && !paragraph.length && !/^\s/.test(line) && !(lines[index - 1] || '').trim()) lists = [];
      if (lists.length && !paragraph.length && (lines[index - 1] || '').trim()) {
        appendInline(lists.at(-1).item, ` ${line.trim()}`, view);
      } else {
        paragraph.push(line.trim().replace(/^(?:>\s?)+/, ''));
      }
    }
  }
  endParagraph();
  return blocks;
};

const addItem = ([, indent, bullet, number, text], lists, blocks, view) => {
  const depth = indent.replace(/\t/g, '    ').length, kind = bullet ? 'ul' : 'ol';
  while (lists.length && lists.at(-1).depth > depth) lists.pop();
  let list = lists.at(-1);
  if (list && (list.kind !== kind && list.depth === depth)) {
    lists.pop();
    list = undefined;
  }
  if (!list || (depth > list.depth + 1 && lists.length < MAX_LIST_DEPTH)) {
    const element = view.make(kind, number && number !== '1' ? { start: Number(number) } : {});
    const outer = lists.at(-1);
    if (outer) outer.item.append(element);
    else blocks.push(element);
    list = { kind, depth, element };
    lists.push(list);
  }
  list.item = view.make('li', { dir: 'auto' });
  appendInline(list.item, text, view);
  list.element.append(list.item);
};

// ---- The answer of the server ----

// Calls `handle` with the name and the data of each event.
const readEvents = async (body, handle) => {
  const reader = body.getReader(), decoder = new TextDecoder();
  let waiting = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    waiting += decoder.decode(value, { stream: true });
    const events = waiting.split('\n\n');
    waiting = events.pop();
    for (const event of events) {
      const fields = Object.fromEntries(event.split('\n').map((line) => line.split(/: ?(.*)/s)));
      if (fields.event && fields.data) handle(fields.event, JSON.parse(fields.data));
    }
  }
};

// Creates the panel in the box. `box` has the functions and settings of the search box that the panel uses.
export const createPanel = ({ make, folder, maxQuestion, follow, close }) => {
  const texts = {};
  const question = make('textarea', { rows: 2, maxlength: maxQuestion, dir: 'auto', enterkeyhint: 'send' });
  const askButton = make('button', { type: 'button', class: 'primary' });
  const stopButton = make('button', { type: 'button', class: 'stop', hidden: '' });
  const backButton = make('button', { type: 'button', class: 'back' });
  const status = make('p', { role: 'status', class: 'state' });
  const answer = make('div', { class: 'answer', 'aria-live': 'polite', role: 'region', hidden: '' });
  const sourcesTitle = make('p', { class: 'heading', id: 'ask-sources' });
  const sourceList = make('ul', { 'aria-labelledby': 'ask-sources' });
  const sources = make('div', { class: 'sources', hidden: '' }, sourcesTitle, sourceList);
  const note = make('p', { class: 'note', hidden: '' });
  const element = make('section', { class: 'ask-panel' },
    make('div', { class: 'question' }, question, make('div', { class: 'buttons' }, askButton, stopButton, backButton)),
    make('div', { class: 'scroll' }, status, answer, sources, note));

  let request, text = '', citations = [], frame = 0, language;

  const citationAddress = ({ url }) => {
    const target = new URL(url, folder);
    return target.origin === folder.origin ? target.href : null;
  };
  const citationName = ({ title, section }) => [title, section !== title && section].filter(Boolean).join(' › ');
  const citationLink = (number) => {
    const citation = citations.find(({ n }) => n === number), href = citation && citationAddress(citation);
    return href ? make('a', { href, class: 'cite', 'aria-label': `${number}: ${citationName(citation)}` }, `${number}`)
      : null;
  };
  const view = { make, citationLink };

  const tell = (words) => {
    if (status.textContent !== words) status.textContent = words;
  };
  const render = () => {
    // A later frame would replace a link that has the focus by then.
    cancelAnimationFrame(frame);
    frame = 0;
    answer.replaceChildren(...renderBlocks(text, view));
    answer.hidden = !text;
    note.hidden = !text;
  };
  const renderLater = () => {
    frame = frame || requestAnimationFrame(render);
  };
  const clear = () => {
    text = '';
    render();
  };
  const listSources = (list) => {
    const items = list.map((citation) => [citation, citationAddress(citation)]).filter(([, href]) => href);
    sourceList.replaceChildren(...items.map(([citation, href]) => make('li', {},
      `[${citation.n}] `, make('a', { href, dir: 'auto' }, citationName(citation) || citation.url))));
    sources.hidden = !items.length;
  };
  const isCited = () => citations.length > 0 && answer.querySelector('a.cite') !== null;

  const setRunning = (isRunning) => {
    askButton.hidden = isRunning;
    stopButton.hidden = !isRunning;
    answer.setAttribute('aria-busy', isRunning);
  };

  // Ends the request. Text without a citation is not left behind.
  const stop = () => {
    if (!request) return;
    request.abort();
    request = null;
    render();
    if (!isCited()) clear();
    tell(texts.stopped);
    const hadFocus = element.getRootNode().activeElement === stopButton;
    setRunning(false);
    if (hadFocus) question.focus();
  };

  const finish = (end) => {
    render();
    if (end.refused) clear();
    listSources(end.citations);
    const refusals = { 'nothing-found': texts.nothing, uncited: texts.uncited };
    tell(end.refused ? refusals[end.refused] || texts.failed : end.truncated ? texts.cut : texts.done);
  };
  const fail = (status) => {
    render();
    if (!isCited()) clear();
    tell(status === 429 ? texts.often : status === 503 ? texts.later : texts.failed);
  };

  const ask = async () => {
    const typed = question.value.trim();
    if (!typed) return question.focus();
    stop();
    clear();
    citations = [];
    listSources([]);
    tell(texts.busy);
    setRunning(true);
    const current = request = new AbortController();
    let isOver = false;
    try {
      const response = await fetch(new URL('ask', folder), {
        method: 'POST', signal: current.signal,
        headers: { 'Content-Type': 'application/json', Accept: 'text/event-stream' },
        body: JSON.stringify({ question: typed, lang: language }),
      });
      if (current !== request) return;
      if (!response.ok) {
        isOver = true;
        fail(response.status);
      } else {
        await readEvents(response.body, (name, data) => {
          if (current !== request || isOver) return;
          if (name === 'citations') citations = data.citations;
          if (name === 'delta') {
            text = (text + data.text).slice(0, MAX_ANSWER_CHARS);
            renderLater();
          }
          if (name === 'done' || name === 'error') {
            isOver = true;
            if (name === 'done') finish(data);
            else fail(data.status);
          }
        });
      }
    } catch { /* The request was stopped or cut. */ }
    if (current !== request) return;
    request = null;
    // A response that ends without its last event was cut.
    if (!isOver) fail(0);
    const hadFocus = element.getRootNode().activeElement === stopButton;
    setRunning(false);
    if (hadFocus) question.focus();
  };

  askButton.addEventListener('click', ask);
  stopButton.addEventListener('click', stop);
  backButton.addEventListener('click', () => close());
  for (const type of ['click', 'auxclick']) {
    element.addEventListener(type, (event) => {
      if (event.target.closest('a')) follow(event);
    });
  }

  return {
    element,
    stop,
    // Shows the texts of a language.
    setLanguage(name, tag) {
      language = tag;
      TEXTS.names.forEach((key, index) => { texts[key] = TEXTS[name][index]; });
      element.setAttribute('aria-label', texts.answer);
      question.setAttribute('aria-label', texts.question);
      question.placeholder = texts.question;
      askButton.textContent = texts.ask;
      stopButton.textContent = texts.stop;
      backButton.textContent = texts.back;
      answer.setAttribute('aria-label', texts.answer);
      sourcesTitle.textContent = texts.sources;
      note.textContent = texts.note;
    },
    // Opens the panel with what the reader has typed, and asks it.
    open(typed) {
      if (typed && typed !== question.value.trim()) {
        question.value = typed;
        ask();
      }
      question.focus();
    },
    // The box stops all events of keys before they reach the panel.
    handleKey(event) {
      if (event.key !== 'Enter' || event.shiftKey || event.isComposing || event.keyCode === 229) return;
      if (element.getRootNode().activeElement !== question) return;
      event.preventDefault();
      if (!event.repeat) ask();
    },
  };
};

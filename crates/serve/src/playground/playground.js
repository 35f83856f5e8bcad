// Sends the calls of this page to listed origins through the playground of docwharf; served as
// BASE/_docwharf/playground.js. The server replaces the object behind SETTINGS, for example by
// {"origins": ["https://api.example"], "base": "/"}. Calls to all other origins are passed on as they are.
(() => {
  'use strict';
  const LOADED = Symbol.for('docwharf.playground');
  if (window[LOADED]) return;
  window[LOADED] = true;

  const settings = /*SETTINGS*/{};
  const origins = new Set(settings.origins);
  const endpoint = new URL(`${settings.base}_docwharf/playground`, location.origin).href;
  // Statuses of responses without a body (Fetch standard).
  const NULL_BODY = [204, 205, 304];
  const { fetch: pageFetch, XMLHttpRequest: PageRequest } = window;

  // Returns the listed URL that a text or URL is, relative to the page; null for any other.
  const listed = (address) => {
    try {
      const url = new URL(address, document.baseURI);
      return origins.has(url.origin) ? url : null;
    } catch {
      return null;
    }
  };

  const toBase64 = (bytes) => {
    let text = '';
    for (let at = 0; at < bytes.length; at += 32768) {
      text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    }
    return btoa(text);
  };
  const fromBase64 = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));

  // Returns the JSON of a request. `bytes` is its body, or null.
  const envelope = (method, url, headers, bytes) => {
    const json = { method, url: url.href.replace(/#.*$/s, ''), headers: {} };
    for (const [name, value] of headers) json.headers[name] = value;
    if (bytes && bytes.length) {
      try {
        json.body = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
      } catch {
        json.body = '';
      }
      // Text is readable for developers, unless its escapes make it much longer.
      if (!json.body || JSON.stringify(json.body).length > bytes.length * 1.2 + 1024) {
        json.body = toBase64(bytes);
        json.encoding = 'base64';
      }
    }
    return JSON.stringify(json);
  };

  // Parses the response of the playground; null, with a warning for developers, if it is a refusal.
  const parse = (status, text, url) => {
    let json = null;
    try {
      json = JSON.parse(text);
    } catch {
      // A proxy may answer with a page.
    }
    if (status !== 200 || !json || typeof json.status !== 'number') {
      const why = json ? `${json.error}: ${json.message}` : `status ${status}`;
      console.warn(`The playground of this site did not send a request to ${url.origin} (${why})`);
      return null;
    }
    const bytes = json.encoding === 'base64' ? fromBase64(json.body) : new TextEncoder().encode(json.body);
    return { status: json.status, headers: json.headers, bytes };
  };

  // Sends a request and returns the response of its target; null if there is none.
  const send = async (method, url, headers, bytes, signal) => {
    const response = await pageFetch.call(window, endpoint, {
      method: 'POST', mode: 'cors', credentials: 'same-origin', cache: 'no-store', redirect: 'error',
      referrerPolicy: 'same-origin', headers: { 'Content-Type': 'application/json' },
      body: envelope(method, url, headers, bytes), signal,
    });
    return decode(parse(response.status, await response.text(), url));
  };

  // Undoes a content coding, which a target may use although the request declares none.
  const decode = async (answer) => {
    const coding = answer && answer.headers.find(([name]) => name === 'content-encoding');
    const format = coding && { gzip: 'gzip', 'x-gzip': 'gzip', deflate: 'deflate' }[coding[1].trim().toLowerCase()];
    if (format && answer.bytes.length && window.DecompressionStream) {
      try {
        const stream = new Blob([answer.bytes]).stream().pipeThrough(new DecompressionStream(format));
        answer.bytes = new Uint8Array(await new Response(stream).arrayBuffer());
      } catch {
        // It was cut, or is coded otherwise. The page gets it as it is.
      }
    }
    return answer;
  };

  // As `fetch`, for a listed URL.
  const fetchListed = async (url, input, init) => {
    const request = new Request(input, init);
    const bytes = new Uint8Array(await request.arrayBuffer());
    request.signal.throwIfAborted();
    const answer = await send(request.method, url, request.headers, bytes, request.signal);
    const isRedirect = answer && [301, 302, 303, 307, 308].includes(answer.status);
    if (!answer || (isRedirect && request.redirect === 'error')) throw new TypeError('Failed to fetch');
    const headers = new Headers();
    for (const [name, value] of answer.headers) {
      try {
        headers.append(name, value);
      } catch {
        // A value that no page can have in a Headers object.
      }
    }
    const body = NULL_BODY.includes(answer.status) ? null : answer.bytes;
    const response = new Response(body, { status: answer.status, headers });
    const shown = url.href.replace(/#.*$/s, '');
    return Object.defineProperties(response, { url: { value: shown }, type: { value: 'cors' } });
  };

  window.fetch = function fetch(input, init) {
    const isRequest = input instanceof Request;
    const isAddress = isRequest || typeof input === 'string' || input instanceof URL;
    const url = isAddress ? listed(isRequest ? input.url : input) : null;
    return url ? fetchListed(url, input, init) : pageFetch.apply(this, arguments);
  };

  // The state of each XMLHttpRequest that was opened for a listed URL. All others behave as the browser makes them.
  const states = new WeakMap();
  const own = (name) => Object.getOwnPropertyDescriptor(PageRequest.prototype, name);
  const native = {
    open: own('open').value, send: own('send').value, abort: own('abort').value,
    setRequestHeader: own('setRequestHeader').value,
  };

  const setReadyState = (xhr, state, readyState) => {
    state.readyState = readyState;
    xhr.dispatchEvent(new Event('readystatechange'));
  };
  const progress = (xhr, name, loaded) => {
    xhr.dispatchEvent(new ProgressEvent(name, { lengthComputable: loaded > 0, loaded, total: loaded }));
  };
  // Ends a request without a response: `name` is the event for the reason.
  const fail = (xhr, state, name) => {
    Object.assign(state, { isSent: false, answer: null });
    setReadyState(xhr, state, 4);
    progress(xhr, name, 0);
    progress(xhr, 'loadend', 0);
  };

  // Returns the bytes of a body as XMLHttpRequest sends them, and its media type.
  const readBody = async (body) => {
    if (body instanceof Document) {
      const type = body.contentType === 'text/html' ? 'text/html' : 'application/xml';
      return [new TextEncoder().encode(new XMLSerializer().serializeToString(body)), `${type};charset=UTF-8`];
    }
    const response = new Response(body);
    return [new Uint8Array(await response.arrayBuffer()), response.headers.get('content-type')];
  };
  // As `readBody`, for a request that must not wait: a text or bytes.
  const readBodyNow = (body) => {
    if (body instanceof ArrayBuffer) return [new Uint8Array(body), null];
    if (ArrayBuffer.isView(body)) return [new Uint8Array(body.buffer, body.byteOffset, body.byteLength), null];
    if (body instanceof Blob || body instanceof FormData) throw new DOMException('Not supported', 'NetworkError');
    const type = body instanceof URLSearchParams ? 'application/x-www-form-urlencoded' : 'text/plain';
    return [new TextEncoder().encode(String(body)), `${type};charset=UTF-8`];
  };

  const hasBody = (state, body) => body !== null && body !== undefined && !['GET', 'HEAD'].includes(state.method);
  const addType = (state, type) => {
    if (type && !state.headers.has('content-type')) state.headers.set('content-type', type);
  };

  const sendLater = async (xhr, state, body) => {
    state.controller = new AbortController();
    const { controller } = state;
    // Whether this request was aborted, or the object was opened again.
    const isOver = () => states.get(xhr) !== state || state.controller !== controller || !state.isSent;
    const timer = xhr.timeout > 0 && setTimeout(() => {
      if (isOver()) return;
      fail(xhr, state, 'timeout');
      controller.abort();
    }, xhr.timeout);
    progress(xhr, 'loadstart', 0);
    let answer = null;
    try {
      let bytes = null;
      if (hasBody(state, body)) {
        const [content, type] = await readBody(body);
        addType(state, type);
        bytes = content;
      }
      answer = await send(state.method, state.url, state.headers, bytes, controller.signal);
    } catch {
      // The network failed, or the request was aborted.
    }
    clearTimeout(timer);
    if (isOver()) return;
    if (!answer) return fail(xhr, state, 'error');
    state.answer = answer;
    setReadyState(xhr, state, 2);
    if (isOver()) return;
    setReadyState(xhr, state, 3);
    if (isOver()) return;
    progress(xhr, 'progress', answer.bytes.length);
    if (isOver()) return;
    state.isSent = false;
    setReadyState(xhr, state, 4);
    if (states.get(xhr) !== state || state.answer !== answer) return;
    progress(xhr, 'load', answer.bytes.length);
    progress(xhr, 'loadend', answer.bytes.length);
  };

  const sendNow = (xhr, state, body) => {
    let bytes = null;
    if (hasBody(state, body)) {
      const [content, type] = readBodyNow(body);
      addType(state, type);
      bytes = content;
    }
    const inner = new PageRequest();
    native.open.call(inner, 'POST', endpoint, false);
    native.setRequestHeader.call(inner, 'Content-Type', 'application/json');
    native.send.call(inner, envelope(state.method, state.url, state.headers, bytes));
    state.answer = parse(inner.status, inner.responseText, state.url);
    state.isSent = false;
    if (!state.answer) {
      state.readyState = 4;
      throw new DOMException('Failed to execute send', 'NetworkError');
    }
    setReadyState(xhr, state, 4);
    progress(xhr, 'load', state.answer.bytes.length);
    progress(xhr, 'loadend', state.answer.bytes.length);
  };

  // Returns the value of a response field, all of its lines joined; null if there is none.
  const fieldOf = (state, name) => {
    const lines = state.answer.headers.filter(([field]) => field === name.toLowerCase());
    const isVisible = lines.length && !/^set-cookie2?$/i.test(name);
    return isVisible ? lines.map(([, value]) => value).join(', ') : null;
  };
  const mediaType = (state) => state.mimeType || fieldOf(state, 'content-type') || '';
  const textOf = (state) => {
    const label = /;\s*charset\s*=\s*"?([^\s;"]+)/i.exec(mediaType(state));
    let decoder = new TextDecoder();
    try {
      if (label) decoder = new TextDecoder(label[1]);
    } catch {
      // An encoding that the browser does not know; it takes UTF-8 as well.
    }
    return decoder.decode(state.answer.bytes);
  };
  const documentOf = (state, isHtmlAllowed) => {
    const type = mediaType(state).split(';')[0].trim().toLowerCase() || 'text/xml';
    const isHtml = type === 'text/html';
    if (isHtml ? !isHtmlAllowed : !/^(text|application)\/xml$|\+xml$/.test(type)) return null;
    const parsed = new DOMParser().parseFromString(textOf(state), isHtml ? 'text/html' : 'application/xml');
    return parsed.querySelector('parsererror') ? null : parsed;
  };
  const responseOf = (xhr, state) => {
    const { bytes } = state.answer;
    switch (xhr.responseType) {
      case 'arraybuffer': return bytes.slice().buffer;
      case 'blob': return new Blob([bytes], { type: mediaType(state) });
      case 'document': return documentOf(state, true);
      case 'json': {
        try {
          return JSON.parse(textOf(state));
        } catch {
          return null;
        }
      }
      default: return textOf(state);
    }
  };

  const methods = {
    open(state, method, address, isAsync = true) {
      const url = listed(address);
      if (state) {
        if (state.controller) state.controller.abort();
        states.delete(this);
      }
      if (!url) return native.open.apply(this, [...arguments].slice(1));
      // Before anything changes: an invalid method is a SyntaxError of the browser.
      const checked = new Request('about:blank', { method });
      if (this.readyState > 0 && this.readyState < 4) native.abort.call(this);
      const opened = { method: checked.method, url, isAsync: Boolean(isAsync), headers: new Headers() };
      Object.assign(opened, { readyState: 0, isSent: false, answer: null, mimeType: '', controller: null });
      states.set(this, opened);
      return setReadyState(this, opened, 1);
    },
    setRequestHeader(state, name, value) {
      if (state.readyState !== 1 || state.isSent) throw new DOMException('It is not open', 'InvalidStateError');
      state.headers.append(name, value);
    },
    overrideMimeType(state, type) {
      state.mimeType = String(type);
    },
    send(state, body) {
      if (state.readyState !== 1 || state.isSent) throw new DOMException('It is not open', 'InvalidStateError');
      state.isSent = true;
      if (state.isAsync) sendLater(this, state, body);
      else sendNow(this, state, body);
    },
    abort(state) {
      const { controller, isSent } = state;
      if (isSent) fail(this, state, 'abort');
      if (controller) controller.abort();
      Object.assign(state, { answer: null, controller: null });
      if (state.readyState === 4) state.readyState = 0;
    },
    getResponseHeader(state, name) {
      return state.answer ? fieldOf(state, String(name)) : null;
    },
    getAllResponseHeaders(state) {
      if (!state.answer) return '';
      const names = [...new Set(state.answer.headers.map(([name]) => name))].sort();
      const lines = names.filter((name) => fieldOf(state, name) !== null);
      return lines.map((name) => `${name}: ${fieldOf(state, name)}\r\n`).join('');
    },
  };
  for (const [name, method] of Object.entries(methods)) {
    const descriptor = own(name);
    const nativeMethod = descriptor.value;
    const isOpen = name === 'open';
    const value = {
      [name](...args) {
        const state = states.get(this);
        if (isOpen && (state || listed(args[1]))) return method.call(this, state, ...args);
        return state ? method.call(this, state, ...args) : nativeMethod.apply(this, args);
      },
    }[name];
    Object.defineProperty(PageRequest.prototype, name, { ...descriptor, value });
  }

  const getters = {
    readyState: (xhr, state) => state.readyState,
    status: (xhr, state) => (state.answer ? state.answer.status : 0),
    statusText: () => '',
    responseURL: (xhr, state) => (state.answer ? state.url.href.replace(/#.*$/s, '') : ''),
    responseText(xhr, state) {
      if (xhr.responseType && xhr.responseType !== 'text') {
        throw new DOMException('responseType is not text', 'InvalidStateError');
      }
      return state.answer && state.readyState >= 3 ? textOf(state) : '';
    },
    response(xhr, state) {
      const isText = !xhr.responseType || xhr.responseType === 'text';
      if (!state.answer || state.readyState < (isText ? 3 : 4)) return isText ? '' : null;
      if (isText) return textOf(state);
      // The same object each time.
      if (!state.response || state.response.answer !== state.answer) {
        state.response = { answer: state.answer, value: responseOf(xhr, state) };
      }
      return state.response.value;
    },
    responseXML(xhr, state) {
      if (xhr.responseType === 'document') return xhr.response;
      return state.answer && state.readyState === 4 && !xhr.responseType ? documentOf(state, false) : null;
    },
  };
  for (const [name, getter] of Object.entries(getters)) {
    const descriptor = own(name);
    Object.defineProperty(PageRequest.prototype, name, {
      ...descriptor,
      get() {
        const state = states.get(this);
        return state ? getter(this, state) : descriptor.get.call(this);
      },
    });
  }
})();

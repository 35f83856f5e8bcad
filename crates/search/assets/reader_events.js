// Sends events to the server that served the page: searches that readers finish, results that they open, and pages that
// they view by soft navigation. The server puts this function into search.js, at EVENTS. It stores nothing in the
// browser, and no event names the reader. `folder` is BASE/_docwharf/.
(folder) => {
  if (navigator.globalPrivacyControl || navigator.doNotTrack === '1') return null;
  // The server refuses more than MAX_BEACONS requests a minute.
  const FINISHED_MS = 1000, MINUTE_MS = 60000, MAX_BEACONS = 60, MAX_SENT_SEARCHES = 500;
  // The number of beacons in the last minute.
  let beacons = 0;

  // Sends one or two events; the host accepts 20 in a beacon.
  const send = async (...events) => {
    if (beacons >= MAX_BEACONS) return;
    beacons++;
    setTimeout(() => beacons--, MINUTE_MS);
    const url = new URL('events', folder).href, body = JSON.stringify({ events });
    // By the Fetch standard, a beacon has the Origin `null` under the referrer policy `no-referrer`, which the server
    // refuses. A request of the mode `cors` always has that of the page.
    const request = { method: 'POST', mode: 'cors', body, keepalive: true, referrerPolicy: 'same-origin' };
    try {
      if ('keepalive' in Request.prototype || !navigator.sendBeacon?.(url, body)) await fetch(url, request);
    } catch { /* Events may be lost. */ }
  };

  // ---- Searches ----

  // The text whose results are listed, and their number.
  let query = '', results = 0;
  // Whether the box is open and lists the results of the text in its input.
  let isAnswered = false;
  let changedAt = 0, timer;
  // The ids of the searches that were sent since the box was opened, by text.
  const sentIds = new Map();
  // The text that was in the box when it was closed.
  let keptText = '';

  // Called when the search is finished. If `link` is the link of a result, a click on it is sent, too. A text is sent
  // once while the box is open; all clicks on its results have its id. A reader who goes on typing after FINISHED_MS
  // begins another search, because an event that was sent cannot be taken back.
  // Returns the id of the search; nothing if there is none.
  const sendSearch = (link) => {
    if (!isAnswered && !link) return;
    const events = [];
    let id = sentIds.get(query);
    if (!id) {
      if (sentIds.size >= MAX_SENT_SEARCHES) return;
      id = crypto.getRandomValues(new BigUint64Array(1))[0].toString(16).padStart(16, '0');
      sentIds.set(query, id);
      events.push({ type: 'search', id, query, results });
    }
    if (link) events.push({ type: 'click', id, page: link.pathname });
    if (events.length) send(...events);
    return id;
  };

  // Called for each change of the text, and when an input method begins to compose text.
  const changeText = (text) => {
    if (text !== keptText) {
      sentIds.delete(keptText);
      keptText = '';
    }
    clearTimeout(timer);
    changedAt = performance.now();
    isAnswered = false;
  };

  const showResults = (text, total) => {
    query = text;
    results = total;
    isAnswered = true;
    timer = setTimeout(sendSearch, changedAt + FINISHED_MS - performance.now());
  };

  const closeBox = () => {
    sendSearch();
    // The text stays in the box. A reader who opens the box again searches again only after changing the text.
    const id = sentIds.get(query);
    sentIds.clear();
    if (id) sentIds.set(keptText = query, id);
    changeText(keptText);
  };

  window.addEventListener('pagehide', () => sendSearch());
  document.addEventListener('visibilitychange', () => sendSearch());

  // ---- Views ----

  // Paths such as `/a`, `/a/`, `/a.html` and `/a/index.html` are forms of one.
  const currentPath = () => location.pathname.replace(/(\/index)?(\.html)?\/?$/, '');
  let viewedPath = currentPath();

  // Called after each change of the address. The host itself counts the pages that the browser loads.
  const handleNavigation = () => {
    if (viewedPath === currentPath()) return;
    viewedPath = currentPath();
    const { origin, pathname } = location;
    // The address of the base path may have no slash at its end.
    if (`${origin}${pathname}/`.startsWith(new URL('..', folder).href)) send({ type: 'view', page: pathname });
  };

  // `navigation` may be something of the site, such as an element with this id.
  if (typeof Navigation === 'function' && window.navigation instanceof Navigation) {
    window.navigation.addEventListener('currententrychange', handleNavigation);
  } else {
    for (const name of ['pushState', 'replaceState']) {
      const change = new Proxy(history[name], {
        apply(original, target, values) {
          const result = Reflect.apply(original, target, values);
          handleNavigation();
          return result;
        },
      });
      // Unlike an assignment, this does not fail if the site has frozen its history.
      Reflect.set(history, name, change);
    }
    window.addEventListener('popstate', handleNavigation);
  }

  return { changeText, showResults, sendSearch, closeBox };
}

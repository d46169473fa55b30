// Live pages: fragments are morphed into place so that focus, scroll, typed text and open details
// stay; the stamp says how old the page's facts are; what went wrong is said and taken back.
(() => {
  const STALE_DEFAULT_S = 60;
  const TICK_MS = 1000;
  const words = () => document.getElementById('words').dataset;

  // --- Swapping

  Idiomorph.defaults.ignoreActiveValue = true;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => {
    const isVisitors = name === 'open' && (node.localName === 'details' || node.localName === 'dialog');
    return !isVisitors;
  };

  document.addEventListener('htmx:beforeSwap', (event) => {
    const { target, requestConfig, swapOverride, xhr } = event.detail;
    // The session has ended: the sign-in page came instead of the fragment.
    if (new URL(xhr.responseURL).pathname === words().signIn) {
      event.preventDefault();
      location.reload();
      return;
    }
    const swap = requestConfig.elt.getAttribute('hx-swap') ?? '';
    if (!swapOverride && target.id && swap.split(' ')[0] === 'outerHTML') {
      event.detail.swapOverride = 'morph:outerHTML';
    }
  });

  document.addEventListener('htmx:afterSwap', () => { label(); tick(); });

  // --- What went wrong

  function problem(text) {
    const box = document.getElementById('live-problem');
    box.hidden = !text;
    box.querySelector('[data-problem-text]').textContent = text ?? '';
  }
  document.addEventListener('htmx:responseError', (event) => {
    const status = event.detail.xhr.status;
    if (status === 401 || status === 403) return location.reload();
    return problem(words().notRefreshed.replace('{status}', String(status)));
  });
  for (const name of ['htmx:sendError', 'htmx:timeout']) {
    document.addEventListener(name, () => problem(words().noAnswer));
  }
  document.addEventListener('htmx:afterRequest', (event) => {
    if (event.detail.successful) problem(null);
  });

  // --- The stream

  let isLive = false;
  let wasLive = false;

  function refreshAll() {
    for (const element of document.querySelectorAll('[hx-trigger*="sse:"]')) {
      const name = element.getAttribute('hx-trigger').match(/sse:[\w.-]+/)[0];
      htmx.trigger(element, name);
    }
  }

  function broker(event) {
    const isDown = event.data === 'down';
    document.getElementById('broker-banner').hidden = !isDown;
    isLive = !isDown;
    tick();
  }

  const known = new WeakSet();
  document.addEventListener('htmx:sseOpen', (event) => {
    isLive = wasLive = true;
    const { source } = event.detail;
    if (!known.has(source)) {
      known.add(source);
      source.addEventListener('broker', broker);
      source.addEventListener('resync', refreshAll);
    }
    tick();
  });
  document.addEventListener('htmx:sseError', () => { isLive = false; tick(); });

  // A throttled trigger drops what comes while it waits, on all triggers of its element; so that
  // the last news is shown too, it is pulled once more when nothing has come for as long.
  const AFTER_MS = 100;
  const late = new WeakMap();
  document.addEventListener('htmx:sseMessage', ({ target }) => {
    const trigger = target.getAttribute('hx-trigger') ?? '';
    const waits = [...trigger.matchAll(/throttle:(\d+)s/g)].map(([, seconds]) => Number(seconds));
    if (!waits.length) return;
    clearTimeout(late.get(target));
    const name = trigger.match(/sse:[\w.-]+/)[0];
    const pull = () => { if (target.isConnected) htmx.trigger(target, name); };
    late.set(target, setTimeout(pull, Math.max(...waits) * 1000 + AFTER_MS));
  });

  // --- The stamp

  function age(seconds) {
    const units = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]];
    const [unit, size] = units.find(([, each]) => seconds >= each) ?? units[3];
    const format = new Intl.RelativeTimeFormat(document.documentElement.lang, { style: 'narrow', numeric: 'always' });
    return format.format(-Math.floor(seconds / size), unit);
  }

  function newest() {
    const times = [...document.querySelectorAll('time[data-seen]')].map((time) => Date.parse(time.dateTime));
    return Math.max(...times.filter(Number.isFinite));
  }

  // A page that shows nothing with an age of its own is live, or it is not any more.
  function tickWithoutAge(stamp) {
    const words = stamp.querySelector('[data-live-word]');
    if (!words) return;
    if (wasLive) {
      const text = isLive ? words.dataset.liveWord : words.dataset.lostWord;
      if (words.textContent !== text) words.textContent = text;
    }
    stamp.classList.toggle('is-live', isLive);
    stamp.classList.toggle('is-stale', wasLive && !isLive);
  }

  function tick() {
    const stamp = document.querySelector('[data-freshness]');
    if (!stamp) return;
    const seconds = (Date.now() - newest()) / 1000;
    if (!Number.isFinite(seconds)) {
      tickWithoutAge(stamp);
      return;
    }
    const limit = Number(stamp.dataset.staleAfter ?? STALE_DEFAULT_S);
    const shown = stamp.querySelector('[data-age]');
    const text = age(Math.max(0, seconds));
    if (shown && shown.textContent !== text) shown.textContent = text;
    stamp.classList.toggle('is-live', isLive && seconds < limit);
    stamp.classList.toggle('is-stale', seconds >= limit);
  }

  // --- Tables: cells know their column, for where the table turns into cards; a box that scrolls
  // can be reached with the keyboard

  function label() {
    for (const table of document.querySelectorAll('table.table:not(.table-plain)')) {
      const heads = [...table.querySelectorAll('thead th')].map((head) => head.textContent.trim());
      for (const row of table.querySelectorAll('tbody tr')) {
        [...row.cells].forEach((cell, index) => {
          if (heads[index] && !cell.hasAttribute('data-label')) cell.dataset.label = heads[index];
          cell.classList.toggle('is-blank', !cell.textContent.trim() && !cell.firstElementChild);
        });
      }
    }
    for (const box of document.querySelectorAll('.table-wrap')) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute('tabindex');
    }
  }

  document.addEventListener('DOMContentLoaded', () => {
    label();
    tick();
    setInterval(tick, TICK_MS);
  });
  window.addEventListener('resize', label);
  document.addEventListener('visibilitychange', () => { if (!document.hidden) tick(); });
})();

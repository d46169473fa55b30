// GPU glyphs: one shared tip that tells on hover and focus what a screen reader hears anyway, and
// the key T, which opens the table of the same facts.
(() => {
  const EDGE_PX = 8;
  let tip = null;

  function bubble() {
    if (!tip) {
      tip = document.createElement('div');
      tip.className = 'glyph-tip';
      tip.popover = 'manual';
      tip.setAttribute('aria-hidden', 'true');
      document.body.append(tip);
    }
    return tip;
  }

  function lines(glyph) {
    const [head, ...rest] = glyph.dataset.tip.split('\n');
    const title = document.createElement('strong');
    title.textContent = head;
    const list = document.createElement('ul');
    for (const text of rest) {
      const item = document.createElement('li');
      item.textContent = text;
      list.append(item);
    }
    return [title, list];
  }

  function show(glyph) {
    const box = bubble();
    box.replaceChildren(...lines(glyph));
    box.showPopover();
    const anchor = glyph.getBoundingClientRect();
    const own = box.getBoundingClientRect();
    const left = Math.min(Math.max(EDGE_PX, anchor.left), innerWidth - own.width - EDGE_PX);
    const below = anchor.bottom + EDGE_PX;
    const fits = below + own.height <= innerHeight - EDGE_PX;
    box.style.left = `${Math.max(EDGE_PX, left)}px`;
    box.style.top = `${fits ? below : Math.max(EDGE_PX, anchor.top - own.height - EDGE_PX)}px`;
  }

  const hide = () => { if (tip?.matches(':popover-open')) tip.hidePopover(); };
  const glyphOf = (event) => event.target.closest?.('.glyph[data-tip]');

  document.addEventListener('pointerover', (event) => {
    const glyph = event.pointerType === 'mouse' && glyphOf(event);
    if (glyph) show(glyph);
    else hide();
  });
  document.addEventListener('focusin', (event) => {
    const glyph = glyphOf(event);
    if (glyph?.matches(':focus-visible')) show(glyph);
    else hide();
  });
  document.addEventListener('focusout', hide);
  document.addEventListener('scroll', hide, true);
  document.addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
    const glyph = glyphOf(event);
    if (!glyph || event.key.toLowerCase() !== 't' || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const details = glyph.parentElement.querySelector('.glyph-facts');
    if (details) {
      details.open = !details.open;
      return;
    }
    document.querySelector('a[data-table-view]')?.click();
  });
})();

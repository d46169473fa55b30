// Copy buttons: `data-copy` names the element whose text is taken, or holds the text itself in
// `data-copy-text`. What happened is said to the eye on the button and to the ear by #announcer.
(() => {
  const SHOWN_MS = 2000;

  async function toClipboard(text) {
    if (navigator.clipboard && window.isSecureContext) {
      await navigator.clipboard.writeText(text);
      return;
    }
    // Plain http on a host name, as inside an institution: browsers offer no clipboard there.
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'visually-hidden';
    document.body.append(area);
    area.select();
    const isDone = document.execCommand('copy');
    area.remove();
    if (!isDone) throw new Error('the browser refused to copy');
  }

  function textOf(button) {
    if (button.dataset.copyText !== undefined) return button.dataset.copyText;
    return document.getElementById(button.dataset.copy)?.textContent.trim() ?? '';
  }

  async function copy(button) {
    const words = document.getElementById('words').dataset;
    const label = button.querySelector('[data-copy-label]');
    const before = button.dataset.before ?? label?.textContent ?? '';
    let said = words.copied;
    try {
      await toClipboard(textOf(button));
      button.classList.add('is-copied');
    } catch {
      said = words.notCopied;
    }
    button.focus();
    document.getElementById('announcer').textContent = said;
    if (!label) return;
    button.dataset.before = before;
    label.textContent = said;
    setTimeout(() => {
      label.textContent = before;
      button.classList.remove('is-copied');
    }, SHOWN_MS);
  }

  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-copy], [data-copy-text]');
    if (button) copy(button);
  });
})();

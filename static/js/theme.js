// The visitor's theme: a cookie that the server reads, so that no page flashes. Loaded in the head
// without delay, since it also tells the style sheets that scripts run.
(() => {
  const root = document.documentElement;
  root.classList.add('has-js');

  function show(choice) {
    root.dataset.bsTheme = choice;
    for (const button of document.querySelectorAll('[data-theme-choice]')) {
      button.setAttribute('aria-pressed', String(button.dataset.themeChoice === choice));
    }
  }

  document.addEventListener('click', (event) => {
    const button = event.target.closest('[data-theme-choice]');
    if (!button) return;
    const choice = button.dataset.themeChoice;
    const secure = location.protocol === 'https:' ? '; secure' : '';
    document.cookie = `slicedesk_theme=${choice}; path=/; max-age=31536000; samesite=lax${secure}`;
    show(choice);
  });
})();

// The request form. The slider moves over the sizes that the cluster really has, and keeps in step
// with the number field beside it; without this file the number field is all there is. And an
// answer that comes late, to what is no longer asked, is let go.
(() => {
  const parts = () => {
    const box = document.querySelector('[data-memory]');
    return box && { box, slider: box.querySelector('[data-memory-slider]'), field: box.querySelector('[name="memory"]') };
  };

  function sizes(box) {
    const form = box.closest('form');
    const isolation = form.querySelector('[name="isolation"]:checked')?.value ?? '';
    const product = form.querySelector('[name="gpu_model"]')?.value ?? '';
    const known = JSON.parse(box.dataset.sizes)[isolation] ?? {};
    return known[product] ?? known[''] ?? [];
  }

  function step(list, gib) {
    const found = list.findIndex((size) => Number(size) >= gib);
    return found < 0 ? list.length - 1 : found;
  }

  function say(slider, list) {
    const size = list[Number(slider.value)];
    if (size) slider.setAttribute('aria-valuetext', `${size} GiB`);
  }

  function follow() {
    const found = parts();
    if (!found) return;
    const { box, slider, field } = found;
    const list = sizes(box);
    slider.max = String(Math.max(0, list.length - 1));
    slider.disabled = list.length < 2;
    if (field.value) slider.value = String(step(list, Number(field.value)));
    say(slider, list);
  }

  document.addEventListener('input', (event) => {
    const found = parts();
    if (!found) return;
    if (event.target !== found.slider) {
      if (found.box.closest('form').contains(event.target)) follow();
      return;
    }
    const list = sizes(found.box);
    found.field.value = list[Number(found.slider.value)] ?? found.field.value;
    say(found.slider, list);
  });
  document.addEventListener('change', (event) => {
    if (event.target !== parts()?.slider) follow();
  });
  document.addEventListener('htmx:beforeSwap', (event) => {
    const { target, requestConfig } = event.detail;
    const form = document.getElementById('request-form');
    if (!form || target.id !== 'fit-answer' || requestConfig.verb !== 'get') return;
    const asked = Object.entries(requestConfig.parameters);
    const now = new FormData(form);
    if (asked.some(([name, value]) => String(now.get(name) ?? '') !== String(value))) {
      event.detail.shouldSwap = false;
    }
  });
  document.addEventListener('htmx:afterSwap', (event) => {
    follow();
    const isRefused = event.detail.target.id === 'request-form' && event.detail.xhr.status === 422;
    if (isRefused) document.querySelector('#request-form [aria-invalid="true"]')?.focus();
  });
  document.addEventListener('DOMContentLoaded', follow);
  follow();
})();

// Builds static/vendor/ out of node_modules: one style sheet, one script, one sprite of icons.
// Nothing of it is committed, and no page loads anything from elsewhere.
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as sass from 'sass';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..', '..');
const modules = join(root, 'node_modules');
const target = join(root, 'static', 'vendor');

// htmx first: its extensions register with it as they load.
const SCRIPTS = [
  'htmx.org/dist/htmx.min.js',
  'htmx-ext-sse/dist/sse.min.js',
  'idiomorph/dist/idiomorph-ext.min.js',
];

function styleSheet() {
  const built = sass.compile(join(here, 'tabler.scss'), {
    loadPaths: [modules],
    style: 'compressed',
    quietDeps: true,
  });
  return built.css;
}

async function script() {
  const parts = await Promise.all(
    SCRIPTS.map(async (name) => `/* ${name} */\n${await readFile(join(modules, name), 'utf8')}`),
  );
  return parts.join('\n;\n');
}

async function sprite() {
  const names = (await readFile(join(here, 'icons.txt'), 'utf8')).split('\n').filter(Boolean);
  const symbols = await Promise.all(names.map(symbol));
  return `<svg xmlns="http://www.w3.org/2000/svg">\n${symbols.join('\n')}\n</svg>\n`;
}

async function symbol(name) {
  const path = join(modules, '@tabler/icons/icons/outline', `${name}.svg`);
  const text = await readFile(path, 'utf8');
  const [, inner] = text.match(/<svg[^>]*>(.*)<\/svg>/s);
  const drawn = inner.replace(/<path stroke="none"[^>]*\/>/, '').replace(/\s+/g, ' ').trim();
  return `<symbol id="${name}" viewBox="0 0 24 24">${drawn}</symbol>`;
}

await rm(target, { recursive: true, force: true });
await mkdir(target, { recursive: true });
await writeFile(join(target, 'tabler.css'), styleSheet());
await writeFile(join(target, 'htmx.js'), await script());
await writeFile(join(target, 'icons.svg'), await sprite());

/**
 * Copyright The kubetenant authors
 * SPDX-License-Identifier: Apache-2.0
 */

// Renders Mermaid diagrams in headless Chromium in a light and a dark theme, as GitHub does.
//
//   node diagrams.mjs CHROMIUM FILE
//
// FILE is a JSON array of objects with the fields name and text. The script prints a JSON array with
// one string for each problem. Each problem begins with the name of its diagram.
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { chromium } from 'playwright-core';

const [executablePath, file] = process.argv.slice(2);
const widest = 1100; // GitHub scales this width to its column of 830 pixels, and 16-pixel text to 12 pixels
const mermaid = createRequire(import.meta.url).resolve('mermaid/dist/mermaid.min.js');

// render runs in the page. It returns the problems with one diagram.
async function render({ text, theme, widest }) {
  const { mermaid } = globalThis;
  mermaid.initialize({ startOnLoad: false, securityLevel: 'strict', theme });
  const box = document.body.appendChild(document.createElement('div'));
  try {
    const { svg } = await mermaid.render('diagram', text);
    box.innerHTML = svg;
    const problems = [];
    const plain = s => s.replace(/<br ?\/?>/g, ' ').replace(/\s+/g, ' ').trim();
    const inside = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1 &&
      inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
    const overlap = (a, b) => {
      const [x, y] = [a, b].map(e => e.getBoundingClientRect());
      return x.left < y.right && y.left < x.right && x.top < y.bottom && y.top < x.bottom;
    };

    // In each kind of diagram, all text must be inside the picture.
    const picture = box.querySelector('svg').getBoundingClientRect();
    const { width } = box.querySelector('svg').viewBox.baseVal;
    if (width > widest) problems.push(`the picture is ${Math.round(width)} pixels wide; want at most ${widest}`);
    for (const e of box.querySelectorAll('foreignObject > *, svg text')) {
      if (!inside(e.getBoundingClientRect(), picture)) problems.push(`"${plain(e.textContent)}" is outside the picture`);
    }
    // The database of a flowchart lists its nodes, edges and groups.
    const { db } = await mermaid.mermaidAPI.getDiagramFromText(text);
    if (!db.getVertices) return [...problems, 'only flowcharts are supported'];
    const groups = db.getSubGraphs();
    const nodes = [...db.getVertices().values()].filter(v => !groups.some(g => g.id === v.id));
    const labels = selector => [...box.querySelectorAll(selector)].map(e => plain(e.innerText)).filter(s => s);
    const compare = (what, want, got) => {
      const [w, g] = [want.filter(s => s).sort(), got.sort()].map(l => JSON.stringify(l));
      if (w !== g) problems.push(`${what}: the picture shows ${g}, the source has ${w}`);
    };
    compare('nodes', nodes.map(v => plain(v.text)), labels('.node .nodeLabel'));
    compare('groups', groups.map(g => plain(g.title)), labels('.cluster-label .nodeLabel'));
    compare('edges', db.getEdges().map(e => plain(e.text)), labels('.edgeLabel .edgeLabel p'));
    for (const node of box.querySelectorAll('.node')) {
      const shape = node.querySelector('.label-container').getBoundingClientRect();
      const label = node.querySelector('foreignObject');
      const content = label.firstElementChild.getBoundingClientRect();
      if (!inside(content, shape) || !inside(content, label.getBoundingClientRect())) {
        problems.push(`"${plain(node.textContent)}" does not fit in its node`);
      }
    }
    const texts = [...box.querySelectorAll('.nodeLabel, .edgeLabel p')].filter(e => e.textContent.trim());
    texts.forEach((a, i) => texts.slice(i + 1).filter(b => overlap(a, b)).forEach(b =>
      problems.push(`"${plain(a.textContent)}" overlaps "${plain(b.textContent)}"`)));
    return problems;
  } catch (e) {
    return [String(e.message ?? e).split('\n')[0]];
  } finally {
    box.remove();
    document.getElementById('ddiagram')?.remove(); // remains after a failed rendering
  }
}

const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(10000);
  const problems = [];
  page.on('pageerror', e => problems.push(`page: ${e}`));
  page.on('request', r => problems.push(`page: requests ${r.url()}`));
  await page.addScriptTag({ content: readFileSync(mermaid, 'utf8') });
  for (const { name, text } of JSON.parse(readFileSync(file, 'utf8'))) {
    for (const theme of ['default', 'dark']) {
      for (const p of await page.evaluate(render, { text, theme, widest })) problems.push(`${name}: ${theme} theme: ${p}`);
    }
  }
  console.log(JSON.stringify(problems));
} finally {
  await browser.close();
}

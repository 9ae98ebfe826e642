/**
 * Copyright The kubetenant authors
 * SPDX-License-Identifier: Apache-2.0
 */

// Tests the page of an access map in headless Chromium. It finds elements by their accessible
// names, as a screen reader does.
//
//   node accessmap.mjs CHROMIUM PAGE
//
// It prints "passed" if all checks pass. Otherwise, it prints the failed check and exits with
// status 1.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';
import { chromium } from 'playwright-core';

const [executablePath, file] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox'] });
try {
  const page = await browser.newPage();
  page.setDefaultTimeout(10000);
  const problems = [], requests = [];
  page.on('pageerror', e => problems.push(String(e)));
  page.on('console', m => m.type() === 'error' && problems.push(m.text()));
  page.on('dialog', d => { problems.push('a dialog: ' + d.message()); d.dismiss(); });
  page.on('request', r => requests.push(r.url()));
  await page.goto(pathToFileURL(file).href);

  const row = name => page.getByRole('row').filter({ has: page.getByRole('rowheader', { name }) });
  const cell = name => page.getByRole('gridcell', { name });
  const status = () => page.getByRole('status').textContent();
  // The page handles a new URL fragment in a hashchange event, after the navigation has ended.
  // settled waits for the result.
  const settled = (locator, text) => locator.filter({ hasText: text }).waitFor();
  const columns = async () => (await page.getByRole('columnheader').allTextContents()).slice(1);

  // Initially, the identities that every cluster has are hidden. The page shows their number, and
  // the time at which the page was created.
  assert.equal(await row(/system:masters/).count(), 0);
  assert.match(await status(), /; 1 identities that every cluster has are hidden$/);
  assert.match(await page.locator('time').textContent(), /^2026-01-02 03:04 UTC$/);
  await page.getByLabel('with what every cluster has').check();

  // A cell shows the access of an identity in a namespace, and the reason for it.
  await assert.doesNotReject(cell('user alice of acme in acme--web of acme: writes workloads (its own namespace)').first().waitFor());
  assert.equal(await cell('service account acme--web/robot of acme in globex--shop of globex: reads configuration (an access grant)').textContent(), 'R');
  assert.match(await cell('group system:masters of system in all namespaces').getAttribute('class'), /write system/);
  assert.equal(await cell('user alice of acme in globex--shop: nothing').textContent(), '');
  // Markup in a name is shown as text.
  await row('<img src=x onerror=alert(1)>').waitFor();
  assert.equal(await page.locator('table img').count(), 0);

  // Filters.
  const all = await status();
  await page.getByLabel('Tenant', { exact: true }).selectOption('acme');
  assert.equal(await row(/system:masters/).count(), 0);
  await page.getByLabel('Why', { exact: true }).selectOption('grant');
  assert.deepEqual(await columns(), ['globex--shopglobex']);
  assert.equal(await status(), '1 identities, 1 namespaces');
  await page.getByLabel('Access', { exact: true }).selectOption('write');
  assert.equal(await status(), '0 identities, 0 namespaces');
  await page.getByLabel('Access', { exact: true }).selectOption('');
  await page.getByLabel('Why', { exact: true }).selectOption('');
  await page.getByLabel('Resources', { exact: true }).selectOption({ label: 'secrets' });
  assert.equal(await cell(/robot of acme in globex--shop/).count(), 0);
  await page.getByLabel('Resources', { exact: true }).selectOption('');
  await page.getByLabel('Tenant', { exact: true }).selectOption('');
  await page.getByLabel('Namespaces of', { exact: true }).selectOption('globex');
  assert.deepEqual(await columns(), ['globex--shopglobex']);
  await page.getByLabel('Namespaces of', { exact: true }).selectOption('');

  // Search.
  await page.getByLabel('Search', { exact: true }).fill('ROBOT');
  assert.equal(await status(), '1 identities, 2 namespaces');
  await page.getByLabel('Search', { exact: true }).fill('no such thing');
  assert.equal(await status(), '0 identities, 0 namespaces');
  await page.getByLabel('Search', { exact: true }).fill('');
  assert.equal(await status(), all);

  // A click on a cell shows its details.
  await cell(/user alice of acme in acme--web/).click();
  const chosen = () => page.getByRole('region', { name: 'Chosen cell' }).textContent();
  assert.match(await chosen(), /user alice of acme in acme--web of acme: writes workloads/);
  assert.match(await chosen(), /writes secrets: .*RoleBinding "edit\/acme--web"/, 'the details of a cell contain the binding');
  await cell(/robot of acme in globex--shop/).click();
  assert.match(await chosen(), /reads configuration: AccessGrant globex--shop\/settings/);
  await cell(/user alice of acme in acme--web/).click();

  // The URL of the page contains the filters.
  await page.getByLabel('Tenant', { exact: true }).selectOption('acme');
  await page.getByLabel('Search', { exact: true }).fill('robot & co');
  await page.waitForURL(/#search=robot\+%26\+co&tenant=acme&system=1$/);
  const link = page.url();
  const other = await browser.newPage();
  await other.goto(link);
  assert.equal(await other.getByLabel('Search', { exact: true }).inputValue(), 'robot & co');
  assert.equal(await other.getByLabel('Tenant', { exact: true }).inputValue(), 'acme');
  assert.equal(await other.getByRole('status').textContent(), '0 identities, 0 namespaces');
  await other.goto(pathToFileURL(file).href + '#tenant=nobody&view=nonsense');
  await settled(other.getByRole('status'), /hidden$/);
  assert.equal(await other.getByLabel('Show', { exact: true }).inputValue(), '', 'unknown filters in a URL are ignored');
  await other.close();
  await page.getByLabel('Search', { exact: true }).fill('');
  await page.getByLabel('Tenant', { exact: true }).selectOption('');

  // The tenants view shows the access of each tenant in the namespaces of each tenant, and links
  // to the identities.
  await page.getByLabel('Show', { exact: true }).selectOption('tenants');
  assert.equal(await cell('callers of acme in namespaces of globex: 1 identity reads').textContent(), 'R');
  assert.match(await cell('callers of acme in namespaces of globex: 1 identity reads').getAttribute('class'), /grant/);
  assert.equal(await cell('callers of globex in namespaces of acme: nothing').count(), 0, 'callers of globex have no access');
  await cell(/callers of acme in namespaces of globex/).click();
  assert.match(await chosen(), /service account acme--web\/robot of acme reads in globex--shop \(an access grant\)/);
  await page.getByRole('link', { name: 'Show them' }).click();
  await settled(page.getByRole('status'), /^1 identities, 1 namespaces; 1 identities that every cluster has are hidden$/);
  assert.deepEqual(await columns(), ['globex--shopglobex']);
  await page.goto(pathToFileURL(file).href + '#system=1');
  await settled(page.getByRole('status'), / namespaces$/);
  await cell(/user alice of acme in acme--web/).click();

  // Keyboard navigation. Tab moves the focus to one cell of the map, the arrow keys move it, and
  // Enter selects the cell.
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label'));
  assert.equal(await page.locator('td[tabindex="0"]').count(), 1);
  await page.keyboard.press('Home');
  const first = await focused();
  await page.keyboard.press('ArrowRight');
  assert.notEqual(await focused(), first);
  await page.keyboard.press('ArrowLeft');
  assert.equal(await focused(), first);
  await page.keyboard.press('ArrowDown');
  const below = await focused();
  assert.notEqual(below, first);
  await page.keyboard.press('Enter');
  assert.equal((await page.getByRole('region', { name: 'Chosen cell' }).locator('p').first().textContent()).trim(), below);
  await page.locator('#search').focus();
  for (let i = 0; i < 14 && !(await page.evaluate(() => document.activeElement.matches('td'))); i++) await page.keyboard.press('Tab');
  assert.equal(await focused(), below, 'Tab moves the focus to the cell that had it last');

  // Accessibility checks of axe, in windows of different widths.
  await page.evaluate(readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8'));
  for (const width of [1600, 800, 400]) {
    await page.setViewportSize({ width, height: 720 });
    // At least two cells of the first row are visible, and only the map scrolls horizontally.
    await page.evaluate(() => document.querySelector('.scroll').scrollIntoView());
    const sight = await page.evaluate(() => ({
      cells: [...document.querySelectorAll('tbody tr:first-child td')].filter(td => {
        const at = td.getBoundingClientRect(), box = document.querySelector('.scroll').getBoundingClientRect();
        return at.left >= box.left && at.right <= box.right && document.elementFromPoint(at.left + at.width / 2, at.top + at.height / 2) === td;
      }).length,
      wide: document.documentElement.scrollWidth > document.documentElement.clientWidth,
    }));
    assert.ok(sight.cells >= 2 && !sight.wide, `${width}: ${JSON.stringify(sight)}`);
    for (const view of ['tenants', '']) {
      await page.getByLabel('Show', { exact: true }).selectOption(view);
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      assert.deepEqual(violations.map(v => `${v.id}: ${v.nodes.map(n => n.target).join(' ')}`), []);
    }
  }
  assert.deepEqual(problems, []);
  assert.deepEqual(requests.filter(u => !u.startsWith('file:')), [], 'the page sends no requests');
  console.log('passed');
} finally {
  await browser.close();
}

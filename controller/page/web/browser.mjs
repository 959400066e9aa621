// SPDX-License-Identifier: Apache-2.0

// Drives headless Chromium on the page of browser_test.go, and prints a line of JSON for each check:
//
//	node browser.mjs URL CONTROL [DIRECTORY]
//
// With a directory, it writes screenshots there.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { chromium } from 'playwright-core'

const [url, control, shots] = process.argv.slice(2)
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const deed = (path) => fetch(`${control}/${path}`, { method: 'POST' })
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})

async function check(name, judge) {
  let fault = '', note = ''
  try {
    note = (await judge()) ?? ''
  } catch (e) {
    fault = String(e.stack ?? e)
  }
  console.log(JSON.stringify({ name, fault, note }))
}
function must(holds, what) {
  if (!holds) throw new Error(what)
}

const complaints = []
async function open(options, fragment) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(10000)
  page.on('pageerror', (e) => complaints.push(String(e)))
  page.on('console', (m) => { if (/Content Security Policy|Trusted/i.test(m.text())) complaints.push(m.text()) })
  page.on('request', (r) => { if (!r.url().startsWith(url)) complaints.push(`a request to ${r.url()}`) })
  await page.goto(url + fragment)
  return page
}
const drawn = (page) => page.waitForFunction(() => {
  const c = document.querySelector('.grid canvas')
  if (!c?.width || !document.querySelector('.key')?.textContent.match(/Bound 1\d,\d{3}/)) return 0
  const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data
  for (let i = 3; i < pixels.length; i += 4) if (pixels[i]) return performance.now()
  return 0
}, null, { polling: 'raf' }).then((h) => h.jsonValue())

await check('a stranger is refused', async () => {
  const page = await open({}, '/')
  for (const [token, text] of [['stranger', 'does not know this token'], ['tenant', 'may not list']]) {
    const answer = page.waitForResponse((r) => r.url().includes('/api/'))
    await page.fill('#token', token)
    await page.keyboard.press('Enter')
    const status = (await answer).status()
    must(status === (token === 'tenant' ? 403 : 401), `${token} gets ${status}`)
    await page.getByRole('alert').filter({ hasText: text }).waitFor()
    must(await page.locator('.grid').count() === 0, 'there is a grid')
  }
  await page.context().close()
})

let page = await open({}, '/#token=viewer')
await check('a /16 with 20 000 leases is drawn within 2 s', async () => {
  let ms = Math.round(await drawn(page))
  for (let again = 0; again < 9 && ms >= 2000; again++) { // the machine is busy
    await page.context().close()
    page = await open({}, '/#token=viewer')
    ms = Math.round(await drawn(page))
  }
  must(ms < 2000, `it took ${ms} ms`)
  must(!page.url().includes('viewer'), `the token stays in the URL: ${page.url()}`)
  return `drawn after ${ms} ms`
})

await check('it scrolls without a frame over 50 ms', async () => {
  const scroll = () => page.evaluate(() => new Promise((done) => {
    const grid = document.querySelector('.grid')
    let last, longest = 0, n = 0
    const frame = (now) => {
      if (last) longest = Math.max(longest, now - last)
      last = now
      grid.scrollTop = (n * 337) % grid.scrollHeight
      n++ < 60 ? requestAnimationFrame(frame) : done(longest)
    }
    requestAnimationFrame(frame)
  }))
  // A busy machine makes long frames too, so there are further tries of a second each.
  let tries = 0
  const best = async (pass) => {
    let longest = Infinity
    for (let i = 0; i < 20 && longest > 50; i++, tries++) longest = Math.min(longest, Math.round(await pass()))
    return longest
  }
  const still = await best(scroll)
  const busy = await best(async () => (await Promise.all([scroll(), deed('churn')]))[0])
  const note = `longest frame ${still} ms, with 500 changes a second ${busy} ms, ${tries} tries`
  must(Math.max(still, busy) <= 50, note)
  return note
})

const reclaimed = async (address) => {
  const began = performance.now()
  await deed(`reclaim/${address}`)
  await page.locator('.feed li', { hasText: address }).filter({ hasText: 'reclaim' }).waitFor()
  const ms = Math.round(performance.now() - began)
  must(ms < 1000, `it took ${ms} ms`)
  return `seen after ${ms} ms`
}
await check('a reclaim is seen within 1 s', async () => {
  const count = () => page.locator('.key button', { hasText: 'Quarantined' }).textContent()
  const before = await count()
  const note = await reclaimed('10.20.0.20')
  must(await count() !== before, 'the key has the old count')
  return note
})

await check('the keyboard moves, explains and closes', async () => {
  await page.locator('.grid').focus()
  const press = async (...keys) => { for (const key of keys) await page.keyboard.press(key) }
  const said = page.locator('.explanation')
  await press('End', 'Home', 'PageDown', 'PageUp', 'ArrowDown', 'ArrowUp', 'ArrowRight', 'ArrowRight', 'Enter')
  await said.getByText('Free: it has no lease.').waitFor()
  await press(...Array(19).fill('ArrowRight'), 'Enter')
  await said.getByText('10.20.0.21 is Warm').waitFor()
  must((await page.locator('.spoken').textContent()).startsWith('10.20.0.21 · Warm'), 'nothing is spoken')
  await page.keyboard.press('Escape')
  await said.waitFor({ state: 'detached' })
})

await check('a click explains', async () => {
  const box = await page.locator('.grid canvas').boundingBox()
  await page.mouse.click(box.x + box.width / 2, box.y + 69)
  const [address] = (await page.locator('.pointed').textContent()).split(' ')
  await page.locator('.explanation').getByText(`${address} is Bound to pod `).waitFor()
  await page.locator('.explanation').getByText('The controller leaves the lease as it is: the pod is alive.').waitFor()
})

await check('filters find addresses', async () => {
  await page.getByRole('searchbox').fill('web-4321')
  await page.getByText('1 match').waitFor()
  await page.getByRole('searchbox').fill('')
  await page.getByLabel('Namespace').selectOption('billing')
  await page.getByLabel('Node').selectOption('node-007')
  await page.locator('.key').getByText('Bound').click()
  await page.locator('.matches li').first().waitFor()
  const texts = await page.locator('.matches li').allTextContents()
  must(texts.every((t) => /Bound · billing\/web-\d+ · node-007$/.test(t)), texts.join('\n'))
  await page.locator('.key').getByText('Bound').click()
  await page.getByLabel('Namespace').selectOption('')
  await page.getByLabel('Node').selectOption('')
})

await check('it survives a restart of the server', async () => {
  await deed('stop')
  await page.getByText('no answer from the controller').waitFor()
  await deed('start')
  await page.getByText('live', { exact: true }).waitFor()
  return reclaimed('10.20.0.22')
})

await check('a /64 has its leases', async () => {
  await page.getByRole('button', { name: 'v6' }).click()
  await page.getByText('v6: too large for a grid, 3 leases').waitFor()
  await page.locator('.grid').focus()
  await page.keyboard.press('End')
  await page.keyboard.press('Enter')
  await page.locator('.explanation').getByText('fd00:20::a:b is Bound to pod shop/six-2').waitFor()
})

for (const [name, options] of Object.entries({
  'wide-light': { colorScheme: 'light' }, 'wide-dark': { colorScheme: 'dark' },
  'narrow-light': { colorScheme: 'light', viewport: { width: 390, height: 844 } }, 'narrow-dark': { colorScheme: 'dark', viewport: { width: 390, height: 844 } },
})) {
  await check(`axe finds nothing serious, ${name}`, async () => {
    const page = await open(options, '/#token=viewer')
    await drawn(page)
    const box = await page.locator('.grid').boundingBox()
    await page.mouse.click(box.x + 120, box.y + 30)
    await page.locator('.explanation p').first().waitFor()
    if (shots) await page.screenshot({ path: `${shots}/${name}.png` })
    must(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'it is wider than the screen')
    await page.evaluate(axe)
    const { violations } = await page.evaluate(() => window.axe.run())
    const serious = violations.filter((v) => ['serious', 'critical'].includes(v.impact))
    must(!serious.length, JSON.stringify(serious.map((v) => [v.id, v.help, v.nodes.map((n) => n.html + n.failureSummary)]), null, 1))
    await page.context().close()
    return `less serious: ${violations.map((v) => v.id).join(' ') || 'none'}`
  })
}

await check('nothing violates the Content-Security-Policy', async () => must(!complaints.length, complaints.join('\n')))
await browser.close()

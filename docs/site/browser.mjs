// SPDX-License-Identifier: Apache-2.0

// Drives headless Chromium on the built site at URL, and prints a line of JSON for each check:
//
//	node browser.mjs URL [DIRECTORY]
//
// With a directory, it writes screenshots there.
import { chromium } from 'playwright-core'

const [url, shots] = process.argv.slice(2)
const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
})

async function check(name, judge) {
  let fault = ''
  try {
    await judge()
  } catch (e) {
    fault = String(e.stack ?? e)
  }
  console.log(JSON.stringify({ name, fault }))
}
function must(holds, what) {
  if (!holds) throw new Error(what)
}

const complaints = []
async function open(options, place = '') {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options })
  const page = await context.newPage()
  page.setDefaultTimeout(60000)
  page.on('pageerror', (e) => complaints.push(String(e)))
  page.on('request', (r) => { if (!r.url().startsWith(url)) complaints.push(`a request to ${r.url()}`) })
  page.on('response', (r) => { if (r.status() >= 400) complaints.push(`${r.status()} for ${r.url()}`) })
  await page.goto(url + place)
  return page
}

// search types a text, opens the best result, and returns the page with the section in view.
async function search(page, text) {
  await page.locator('#local-search button').first().click()
  await page.locator('.search-input').fill(text)
  await page.locator('.results .result').first().waitFor()
  if (shots) await page.screenshot({ path: `${shots}/search-${text.replaceAll(/\W+/g, '-')}.png` })
  const from = page.url()
  await page.locator('.results .result').first().click()
  await page.waitForURL((to) => to.href !== from)
  return page.waitForFunction(() => {
    const heading = location.hash ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : document.querySelector('.vp-doc h1')
    if (!heading || heading.getBoundingClientRect().top > innerHeight) return ''
    let text = ''
    for (let e = heading.nextElementSibling; e && !/^H[1-6]$/.test(e.tagName); e = e.nextElementSibling) text += e.textContent
    return text
  }).then((h) => h.jsonValue())
}

for (const [error, remedy] of [
  ['failed to find plugin "fenceline"', 'cni.binDir'],
  ['failed calling webhook', 'Exempt the API group'],
  ['FencelineQuarantineStuck', 'out-of-service'],
]) {
  await check(`a search for the text of an error lands on its remedy: ${error}`, async () => {
    const page = await open({})
    const found = await search(page, error)
    must(found.includes(remedy), `at ${page.url()} stands no ${remedy}:\n${found}`)
    await page.context().close()
  })
}

await check('a Chinese word is found inside a sentence', async () => {
  const page = await open({}, 'zh/')
  const found = await search(page, '接管')
  must(page.url().includes('/zh/migration') && found.includes('接管'), `${page.url()} has:\n${found}`)
  if (shots) await page.screenshot({ path: `${shots}/zh-found.png` })
  await page.context().close()
})

for (const [width, height] of [[1360, 860], [390, 844]]) {
  for (const colorScheme of ['light', 'dark']) {
    await check(`${width} columns, ${colorScheme}: nothing is wider than the window`, async () => {
      const page = await open({ viewport: { width, height }, colorScheme })
      for (const place of ['', 'concepts.html', 'api.html', 'zh/']) {
        await page.goto(url + place)
        const [wide, dark] = await page.evaluate(() => [document.documentElement.scrollWidth, document.documentElement.classList.contains('dark')])
        must(wide <= width, `/${place} is ${wide} wide`)
        must(dark === (colorScheme === 'dark'), `/${place} is dark: ${dark}`)
        if (shots) await page.screenshot({ path: `${shots}/${place.replace('/', '') || 'front'}-${width}-${colorScheme}.png` })
      }
      await page.context().close()
    })
  }
}

await check('printed, a page is its text alone, and no line is cut off', async () => {
  const page = await open({ colorScheme: 'light', viewport: { width: 720, height: 1000 } }, 'start.html')
  await page.emulateMedia({ media: 'print' })
  const cut = await page.evaluate(() => [...document.querySelectorAll('.vp-doc pre, .vp-doc table')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => e.textContent.slice(0, 80)))
  must(!cut.length, `cut off: ${cut.join('; ')}`)
  for (const part of ['.VPNav', '.VPSidebar', '.VPLocalNav']) must(!await page.locator(part).first().isVisible(), `${part} is printed`)
  if (shots) await page.pdf({ path: `${shots}/start.pdf`, format: 'A4' })
  await page.context().close()
})

await check('no page asks another host, misses a file or fails', async () => must(!complaints.length, complaints.join('; ')))
await browser.close()

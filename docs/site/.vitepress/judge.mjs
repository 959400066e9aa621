// SPDX-License-Identifier: Apache-2.0

// Judges the built site.
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'

// judge fails if a link, an anchor or an image of a page in dir leads nowhere, if no page leads to a page, or if a
// page loads anything from another host.
export function judge(dir, base) {
  const faults = []
  const all = readdirSync(dir, { recursive: true }).filter((file) => file.endsWith('.html') && file !== '404.html')
  const text = Object.fromEntries(all.map((file) => [file, readFileSync(path.join(dir, file), 'utf8')]))
  const ids = Object.fromEntries(all.map((file) => [file, new Set([...text[file].matchAll(/\sid="([^"]+)"/g)].map((m) => m[1]))]))
  const met = new Set(['index.html'])
  for (const from of all) {
    for (const [, tag, link] of text[from].matchAll(/<(a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"/g)) {
      if (/^(https?|mailto):/.test(link)) {
        if (tag !== 'a') faults.push(`${from} loads ${link}`)
        continue
      }
      const [address, anchor] = link.split('#').map(decodeURIComponent)
      if (address && !address.startsWith(base)) {
        faults.push(`${from} leads to ${link}, which is outside ${base}`)
        continue
      }
      const to = address ? address.slice(base.length).replace(/(^|\/)$/, '$1index.html') : from
      if (to !== from) met.add(to)
      if (!existsSync(path.join(dir, to)) || (anchor && !ids[to]?.has(anchor))) faults.push(`${from} leads to ${link}, which does not exist`)
    }
  }
  for (const file of all) {
    if (!met.has(file)) faults.push(`no page leads to ${file}`)
  }
  if (faults.length) throw new Error(`the site is not sound:\n${[...new Set(faults)].join('\n')}`)
}

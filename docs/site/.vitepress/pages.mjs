// SPDX-License-Identifier: Apache-2.0

// Knows which documents of the repository are pages, where they stand on the site, and in which order.
import { existsSync, readFileSync, statSync } from 'node:fs'
import path from 'node:path'

const root = path.resolve(import.meta.dirname, '../../..')
const read = (file) => readFileSync(path.join(root, file), 'utf8')
// chart names the repository, to which links to other files than pages lead.
const repository = read('charts/fenceline/Chart.yaml').match(/^home: (\S+)$/m)[1]

// place returns the place on the site of a document. Both have the suffix .md.
function place(file) {
  switch (file) {
    case 'README.md': return 'index.md'
    case 'docs/README.md': return 'pages.md'
    case 'docs/zh/README.md': return 'zh/index.md'
    case 'charts/fenceline/README.md': return 'chart.md'
    case 'examples/README.md': return 'examples.md'
  }
  return file.startsWith('docs/') ? file.slice('docs/'.length) : file.toLowerCase()
}

export const pages = { root, place }

// title returns the heading of a document.
function title(file) {
  return read(file).match(/^# (.+)$/m)[1].replaceAll('`', '')
}

// target returns the address on the site of a link in the file `from`: a page, or a file in the repository.
export function target(from, link, version) {
  if (/^[a-z]+:|^[#/]/.test(link)) return link
  const [to, anchor] = link.split('#')
  const file = path.relative(root, path.resolve(path.dirname(from), decodeURI(to)))
  if (!existsSync(path.join(root, file))) throw new Error(`${path.relative(root, from)} links to ${link}, which does not exist`)
  if (file.endsWith('.md')) return `/${place(file)}${anchor ? `#${anchor}` : ''}`
  const kind = statSync(path.join(root, file)).isDirectory() ? 'tree' : 'blob'
  return `${repository}/${kind}/v${version}/${file}`
}

// sidebar returns the pages in the order of docs/README.md: a bold text with a colon begins a group, each link is a
// page. For Chinese readers their group comes first, and the others are closed.
export function sidebar(locale) {
  const groups = []
  const known = new Set()
  for (const [, text, link] of read('docs/README.md').matchAll(/\*\*([^*]+)[:：]\*\*|\]\(([^)#]+)[^)]*\)/g)) {
    if (text) {
      groups.push({ text, collapsed: Boolean(locale), items: [] })
      continue
    }
    const file = path.join('docs', link)
    if (!groups.length || !file.endsWith('.md') || known.has(file)) continue
    known.add(file)
    groups.at(-1).items.push({ text: title(file), link: `/${place(file).replace(/(index)?\.md$/, '')}` })
  }
  if (!locale) return groups
  const own = groups.find((group) => group.items[0].link.startsWith(`/${locale}/`))
  return [{ ...own, collapsed: false }, ...groups.filter((group) => group !== own)]
}

// fronts are the heads of the front pages. The README follows below.
export const fronts = {
  'index.md': {
    name: 'Fenceline',
    text: 'One address, one speaker',
    tagline: 'An IPAM plugin for Kubernetes: addresses of an underlay network for pods on macvlan, ipvlan or SR-IOV.',
    actions: [
      { text: 'Install', link: '/start' },
      { text: 'In pictures', link: '/concepts', theme: 'alt' },
      { text: 'All pages', link: '/pages', theme: 'alt' },
    ],
  },
  'zh/index.md': {
    name: 'Fenceline',
    text: '一个地址，一个发言者',
    tagline: 'Kubernetes 的 IPAM 插件：为 macvlan、ipvlan 或 SR-IOV 上的 Pod 分配底层网络的地址。',
    actions: [
      { text: '安装', link: '/zh/start' },
      { text: '从 Spiderpool 迁入', link: '/zh/migration', theme: 'alt' },
      { text: '图解（英文）', link: '/concepts', theme: 'alt' },
    ],
  },
}

// SPDX-License-Identifier: Apache-2.0

// Makes the site of the documents as they lie in the repository. VERSION is the version in the path, and BASE the
// path before it, such as /fenceline, or unset.
import path from 'node:path'
import { defineConfig } from 'vitepress'
import { judge } from './judge.mjs'
import { fronts, pages, sidebar, target } from './pages.mjs'

const version = process.env.VERSION
if (!version) throw new Error('VERSION is not set: run `make site`')
const base = `${process.env.BASE ?? ''}/${version}/`

export default defineConfig({
  srcDir: path.relative('.', pages.root) || '.',
  srcExclude: ['{agent,apis,bpf,cli,cni,controller,internal,test,bin,dist,images,site}/**', 'docs/site/**'],
  outDir: path.join(pages.root, 'site', version),
  cacheDir: path.join(pages.root, '.cache/vitepress'),
  base,
  rewrites: pages.place,
  title: 'Fenceline',
  description: 'IP addresses for pods on an underlay network, each with one speaker at a time',
  head: [['link', { rel: 'icon', href: `${base}icon.svg` }]],
  // Without a host that knows them, short addresses would be dead.
  cleanUrls: false,
  ignoreDeadLinks: true, // judge knows headings and images too
  buildEnd: ({ outDir }) => judge(outDir, base),
  transformPageData: ({ relativePath }) => fronts[relativePath] && { frontmatter: { layout: 'home', hero: fronts[relativePath] } },
  // The pages lie outside the directory of the packages, of which they import vue.
  vite: {
    publicDir: path.join(pages.root, 'controller/page/web/public'),
    plugins: [{
      name: 'packages',
      enforce: 'pre',
      resolveId(id, from) {
        return /^vue\b/.test(id) && from?.endsWith('.md') ? this.resolve(id, import.meta.filename, { skipSelf: true }) : null
      },
    }],
  },
  markdown: {
    anchor: { slugify },
    config(md) {
      md.core.ruler.push('repository', ({ tokens, env }) => {
        for (const { children } of tokens) {
          children?.forEach((t, i) => {
            if (t.type === 'link_open') t.attrSet('href', target(env.realPath ?? env.path, t.attrGet('href'), version))
            // "<node UID>" in a text is no element.
            if (t.type === 'html_inline' && !/^<(br|img|!--)/.test(t.content)) t.type = 'text'
            // The end of a line is no space in Chinese.
            if (t.type === 'softbreak' && /[\p{Script=Han}，。：；、）]$/u.test(children[i - 1]?.content) && /^[\p{Script=Han}（]/u.test(children[i + 1]?.content)) t.type = 'text'
          })
        }
      })
    },
  },
  locales: {
    root: { label: 'English', lang: 'en-US' },
    zh: {
      label: '简体中文',
      lang: 'zh-CN',
      description: '为底层网络上的 Pod 分配 IP 地址，每个地址同一时刻只有一个发言者',
      themeConfig: {
        sidebar: sidebar('zh'),
        nav: [
          { text: '安装', link: '/zh/start' },
          { text: '故障排除（英文）', link: '/symptoms' },
          { text: '所有页面（英文）', link: '/pages' },
          { text: `版本 ${version}`, link: '/changelog' },
        ],
        outline: { label: '本页目录', level: [2, 3] },
        docFooter: { prev: '上一页', next: '下一页' },
        darkModeSwitchLabel: '外观',
        lightModeSwitchTitle: '切换到浅色',
        darkModeSwitchTitle: '切换到深色',
        sidebarMenuLabel: '页面',
        returnToTopLabel: '返回顶部',
        langMenuLabel: '语言',
        skipToContentLabel: '跳到内容',
      },
    },
  },
  themeConfig: {
    // Most pages are in English only: another language begins at its front page.
    i18nRouting: false,
    sidebar: sidebar(''),
    outline: { level: [2, 3] },
    nav: [
      { text: 'Install', link: '/start' },
      { text: 'Troubleshooting', link: '/symptoms' },
      { text: 'Pages', link: '/pages' },
      { text: `Version ${version}`, link: '/changelog' },
    ],
    search: {
      provider: 'local',
      options: {
        detailedView: true,
        miniSearch: { options: { tokenize } },
        locales: {
          zh: {
            translations: {
              button: { buttonText: '搜索', buttonAriaLabel: '搜索' },
              modal: {
                displayDetails: '显示详情',
                resetButtonTitle: '清除',
                backButtonTitle: '关闭',
                noResultsText: '没有结果：',
                footer: { selectText: '打开', navigateText: '移动', closeText: '关闭' },
              },
            },
          },
        },
      },
    },
  },
})

// slugify makes the anchor of a heading as the hosting platform does, so that one link serves both.
function slugify(heading) {
  return heading.trim().toLowerCase().replace(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-')
}

// tokenize splits a text into words; a Chinese character is one. It is run in the browser too, so it is closed.
function tokenize(text) {
  return text.split(/[\s\p{P}\p{S}]+/u).flatMap((word) => word.match(/\p{Script=Han}|\P{Script=Han}+/gu) ?? [])
}

import { readFileSync } from 'node:fs'

// slugify makes the anchors that the pages' links have, which are those of GitHub.
const slugify = (text) => text.toLowerCase().trim().replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-')

// sidebar has the pages by the headings of the index, which lists all of them. Groups cannot
// be folded: the theme nests one button in another there, which screen readers do not tell.
function sidebar(text) {
  const top = []
  let group
  for (const line of text.split('\n')) {
    const heading = line.match(/^(##+) (.*)/)
    if (heading) {
      group = { text: heading[2], items: [] }
      if (heading[1] === '##') top.push(group)
      else top.at(-1).items.push(group)
      continue
    }
    const cell = line.match(/^\| (.*?) \|/)
    for (const [, title, page] of cell?.[1].matchAll(/\[([^\]]+)\]\(([^):#]+)\.md\)/g) ?? []) {
      group.items.push({ text: title, link: '/' + page })
    }
  }
  return top.filter((group) => group.items.length > 0)
}

export default {
  title: 'Contiv',
  description: 'Policy-driven networking for containers, pods and processes',
  buildConcurrency: 1, // or the search has the pages in another order each time
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  appearance: 'force-auto', // pictures follow the system's choice too
  markdown: { anchor: { slugify }, theme: { light: 'github-light-high-contrast', dark: 'github-dark-high-contrast' } },
  themeConfig: {
    sidebar: sidebar(readFileSync(new URL('../index.md', import.meta.url), 'utf8')),
    outline: [2, 3],
    search: { provider: 'local' },
  },
}

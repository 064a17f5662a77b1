// prepare.mjs DOCS TO VERSION: copies the pages that users read to a directory, as VitePress
// takes them: README.md is index.md, and links to anything else lead to the repository.
import { cpSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'

const [docs, to, version] = process.argv.slice(2)
const parts = ['tutorials', 'how-to', 'concepts', 'reference']
const repository = `https://github.com/contiv/netplugin/blob/v${version}/`

// own reports whether a file, relative to the pages, is part of the site.
const own = (file) => file === 'README.md' || file === 'reliability.md' || [...parts, 'pictures'].includes(file.split('/')[0])

const index = (file) => file.replace(/(^|\/)README\.md$/, '$1index.md')

function link(page, target) {
  if (/^([a-z]+:|#)/.test(target)) return target
  const [path, anchor] = target.split('#')
  const file = posix.normalize(posix.join(posix.dirname(page), path))
  const hash = anchor === undefined ? '' : '#' + anchor
  return (own(file) ? index(path) : repository + posix.normalize(posix.join('docs', file))) + hash
}

function convert(page, text) {
  let code = false
  return text.split('\n').map((line) => {
    if (line.startsWith('```')) code = !code
    return code ? line : line.replace(/\]\(([^()\s]+)\)/g, (_, target) => `](${link(page, target)})`)
  }).join('\n')
}

const pages = parts.flatMap((part) => readdirSync(join(docs, part)).filter((f) => f.endsWith('.md')).map((f) => `${part}/${f}`))
for (const page of ['README.md', 'reliability.md', ...pages]) {
  const file = join(to, index(page))
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, convert(page, readFileSync(join(docs, page), 'utf8')))
}
cpSync(join(docs, 'pictures'), join(to, 'pictures'), { recursive: true })

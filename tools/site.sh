#!/usr/bin/env bash
# site.sh [TO [test]]: makes a static site of the pages that users read, with a search that
# needs no server: TO/contiv-docs-VERSION.tar.gz (`make docs`). bin/site has it unpacked.
# With "test" a browser opens every page.
set -euo pipefail
cd "$(dirname "$0")/.."
to=${1:-bin} version=$(<VERSION)
command -v npm >/dev/null || tools/deps.sh node
mkdir -p bin "$to"
work=bin/site-work
rm -rf "$work/.vitepress" bin/site
mkdir -p "$work"
cp -r tools/site/package.json tools/site/package-lock.json tools/site/.vitepress "$work"
node tools/site/prepare.mjs docs "$work" "$version"
(
	cd "$work"
	npm ci --no-audit --no-fund --loglevel=error
	npx vitepress build . --outDir ../site
)
tools/pack.sh "$to/contiv-docs-$version.tar.gz" bin --transform "s,^site,contiv-docs-$version," site
[[ ${2:-} == test ]] || exit 0
[[ -x /usr/bin/chromium ]] || tools/deps.sh chromium
go -C test/site test -timeout 20m -count=1 -v ./...

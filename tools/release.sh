#!/usr/bin/env bash
# release.sh: archives and packages (deb, rpm) of the programs for each platform, what each
# program is made of (CycloneDX), and checksums, in dist/ (`make release`). The same commit makes the same bytes. It refuses when
# the checkout differs from its commit, or when a long report is of other code: a release does
# not claim what no test has shown of it.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() {
	echo "release.sh: no release: $1" >&2
	exit 1
}
changed=$(git status --porcelain)
[[ -z $changed ]] || refuse "commit or remove what is not committed:"$'\n'"$changed"
tools/report-ages.sh -strict || refuse "these reports are not of this code: renew and commit them"

version=$(<VERSION)
sbom=$(GOFLAGS='-trimpath -mod=readonly' go tool -modfile=tools/packages/go.mod -n cyclonedx-gomod)
export CGO_ENABLED=0 GOFLAGS=-trimpath GOOS=linux GOARCH
rm -rf dist
for GOARCH in amd64 arm64; do
	name=contiv-$version-linux-$GOARCH
	make --no-print-directory build OUT="dist/$name" VERSION="$version"
	for program in "dist/$name"/*; do
		"$sbom" bin -json -std -noserial -notimestamp -version "$version" -output "dist/contiv-${program##*/}-$version-linux-$GOARCH.cdx.json" "$program"
	done
	cp LICENSE "dist/$name/"
	cp internal/datapath/ebpf/bpf/LICENSE "dist/$name/LICENSE.ebpf"
	tools/licences.sh ./cmd/... >"dist/$name/LICENSE.modules"
	tar --sort=name --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --mtime="@$(git log -1 --format=%ct)" -C dist -c "$name" | gzip -9n >"dist/$name.tar.gz"
	tools/packages.sh "$version" "$GOARCH" "dist/$name" dist
	rm -r "dist/${name:?}"
done
cd dist
sha256sum -- contiv* | tee SHA256SUMS

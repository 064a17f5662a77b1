#!/usr/bin/env bash
# release.sh: a release in dist/ (`make release`), which docs/design/releasing.md describes. The
# same commit makes the same bytes. It refuses when the checkout differs from its commit, or when
# a long report is of other code: a release does not claim what no test has shown of it.
# RELEASE_KEY is the file of an SSH key, private or in ssh-agent, that signs the checksums.
set -euo pipefail
cd "$(dirname "$0")/.."
refuse() {
	echo "release.sh: no release: $1" >&2
	exit 1
}
changed=$(git status --porcelain)
[[ -z $changed ]] || refuse "commit or remove what is not committed:"$'\n'"$changed"
tools/report-ages.sh -strict || refuse "these reports are not of this code: renew and commit them"
key=${RELEASE_KEY:+$(realpath -- "$RELEASE_KEY")}
[[ -z $key || -r $key ]] || refuse "RELEASE_KEY: $key cannot be read"

version=$(<VERSION)
kube=packaging/kubernetes
grep -qx "appVersion: $version" $kube/chart/Chart.yaml && grep -q "/contiv:$version\"" $kube/contiv.yaml || refuse "chart or manifest is not of version $version: run go generate ./$kube and commit"
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
	tools/pack.sh "dist/$name.tar.gz" dist "$name"
	tools/packages.sh "$version" "$GOARCH" "dist/$name" dist
	plugin=contiv-plugin-$version-linux-$GOARCH
	packaging/docker-plugin/build.sh "dist/$name" "dist/$plugin" "contiv/netplugin:${version%.*}"
	tools/pack.sh "dist/$plugin.tar.gz" dist "$plugin"
	rm -r "dist/${plugin:?}"
done
unset GOOS GOARCH # of the release; what packs the rest runs here

image() { # NAME ARCHIVE FLAG...
	go run ./packaging/image -bin "$(echo dist/contiv-"$version"-linux-*/ | tr ' ' ,)" -name "docker.io/contiv/$1:$version" -o "dist/$2-$version.tar" \
		-revision "$(git rev-parse HEAD)" -time "$(git log -1 --format=%cI)" "${@:3}"
}
image contiv contiv-image
image netmaster contiv-image-netmaster -programs netctl,netmaster -user 65532
rm -r dist/contiv-"$version"-linux-*/
tools/pack.sh "dist/contiv-chart-$version.tgz" $kube --dereference --transform 's,^chart,contiv,' chart
tools/pack.sh "dist/contiv-kubernetes-$version.tar.gz" $kube --transform "s,^,contiv-kubernetes-$version/," {contiv,uninstall,crds,admission,netmaster-rbac}.yaml

tools/site.sh dist

cd dist
sha256sum -- contiv* | tee SHA256SUMS
if [[ -n $key ]]; then
	ssh-keygen -q -Y sign -n contiv-release -f "$key" SHA256SUMS
else
	echo "release.sh: the release is unsigned: RELEASE_KEY names no key" >&2
fi
echo "release.sh: docs/design/releasing.md has the next steps" >&2

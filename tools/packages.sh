#!/usr/bin/env bash
# packages.sh VERSION ARCH BIN OUT: packages (deb, rpm) of the programs in BIN, for ARCH (amd64,
# arm64), in OUT; of packaging/packages and packaging/systemd. The same programs and commit make
# the same bytes.
set -euo pipefail
export VERSION=$1 ARCH=$2 SOURCE_DATE_EPOCH
bin=$(realpath "$3") out=$(realpath "$4")
cd "$(dirname "$0")/.."
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
unset GOOS GOARCH # of the packages; what makes them runs here
nfpm=$(GOFLAGS='-trimpath -mod=readonly' go tool -modfile=tools/packages/go.mod -n nfpm)
go build -o "$work/here/" ./cmd/netctl

install -m 755 "$bin"/{netmaster,netplugin,netctl,contivk8s} packaging/packages/*.p* "$work/"
install -m 644 packaging/packages/*.yaml packaging/systemd/*.service packaging/systemd/contiv.sysusers.conf "$work/"
GOARCH=$ARCH tools/licences.sh ./cmd/{netmaster,netplugin,netctl,contivk8s} | gzip -9n >"$work/licences.gz"
cat LICENSE internal/datapath/ebpf/bpf/LICENSE >"$work/copyright"
for shell in bash zsh fish; do "$work/here/netctl" completion "$shell" >"$work/netctl.$shell"; done
man() { # PROGRAM SECTION PHRASE
	awk -v name="$1" -v section="$2" -v about="$3" -v date="$(date -u -d "@$SOURCE_DATE_EPOCH" +%F)" -v version="$VERSION" \
		-f tools/man.awk "docs/reference/$1.md" | gzip -9n >"$work/$1.$2.gz"
}
man netmaster 8 'API server and controller of Contiv'
man netplugin 8 'host agent of Contiv'
man contivk8s 8 'CNI plugin of Contiv'
man netctl 1 'command line of Contiv'
chmod 644 "$work"/*.gz "$work"/netctl.*sh "$work/copyright"

cd "$work"
for package in contiv-*.yaml; do
	for kind in deb rpm; do
		"$nfpm" package --config "$package" --packager "$kind" --target "$out/" >"$work/log" || { cat "$work/log" >&2; exit 1; }
	done
done

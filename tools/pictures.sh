#!/usr/bin/env bash
# Draws docs/pictures/NAME.svg of docs/pictures/NAME.d2 with D2, for those whose source,
# style or picture has changed. TestDiagramsAreDrawnFromTheirSource of internal/archtest finds those that were not drawn.
set -euo pipefail
cd "$(dirname "$0")/../docs/pictures"
sum() { cat "$@" | sha256sum | cut -c-16; }
# Fills that a source chooses have no dark theme in D2: dark.css replaces them.
for source in *.d2; do
	name=${source%.d2} of=$(sum style.d2 dark.css "$source")
	[[ $name != style ]] || continue
	if [[ -f $name.svg && $(tail -n1 "$name.svg") == "<!-- of $of: $(head -n-1 "$name.svg" | sum) -->" ]]; then continue; fi
	GOFLAGS="${GOFLAGS:-} -mod=readonly" go tool -modfile=../../tools/d2/go.mod d2 --scale 1 --no-xml-tag "$source" - |
		sed "s|</svg></svg>\$|<style>$(tr -d '\n' <dark.css)</style>&\n|" >"$name.svg"
	echo "<!-- of $of: $(sum "$name.svg") -->" >>"$name.svg"
done

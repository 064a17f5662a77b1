package netctl

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
)

// hidden reports whether a rune steers a terminal or shows as nothing instead of being
// shown: controls of both kinds (ESC, U+009B), marks that turn the direction of text
// around. Labels and names with such come from images and runtimes.
func hidden(r rune) bool { return !unicode.IsPrint(r) }

// visible is a text for a table's cell, with \u in place of what is hidden.
func visible(s string) string { return escape(s, false, escapedRune) }

// visibleJSON is the same JSON value without hidden runes, which are all in strings.
func visibleJSON(s string) string {
	return escape(s, true, func(r rune) string {
		if high, low := utf16.EncodeRune(r); high != unicode.ReplacementChar {
			return escapedRune(high) + escapedRune(low) // RFC 8259 section 7
		}
		return escapedRune(r)
	})
}

// visibleYAML is the same YAML without hidden runes, which textNode puts into double
// quotes.
func visibleYAML(s string) string { return escape(s, true, escapedRune) }

// escape writes hidden runes by how; lines end where they did, if there are lines.
func escape(s string, lines bool, how func(rune) string) string {
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) && (!lines || r != '\n') {
			b.WriteString(how(r))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapedRune is a rune as Go, YAML and, up to U+FFFF, JSON write it.
func escapedRune(r rune) string {
	if r > 0xffff {
		return fmt.Sprintf(`\U%08x`, r)
	}
	return fmt.Sprintf(`\u%04x`, r)
}

package transport

import (
	"slices"
	"strings"
	"testing"
)

// FuzzTokenFile: a file of tokens is refused, or has one at least, each of which is a whole
// line of the file and can stand in a header; and the tokens alone are the same file.
func FuzzTokenFile(f *testing.F) {
	for _, s := range []string{first, "\n" + first + "\r\n\n" + second, "short", first + " " + second, "", "\x00" + first, first + "\u2028" + second} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseTokens(text)
		if err != nil {
			if strings.TrimSpace(text) != "" && len(strings.TrimSpace(text)) >= MinTokenLength && strings.Contains(err.Error(), strings.TrimSpace(text)) {
				t.Errorf("%q: the refusal tells it: %v", text, err)
			}
			return
		}
		if len(all) == 0 {
			t.Fatalf("%q has no token, and is accepted", text)
		}
		lines := strings.Split(text, "\n")
		for _, token := range all {
			if len(token) < MinTokenLength || !slices.ContainsFunc(lines, func(l string) bool { return strings.TrimSpace(l) == token }) {
				t.Errorf("%q has token %q", text, token)
			}
			if strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) >= 0 {
				t.Errorf("token %q cannot stand in a header", token)
			}
		}
		if again, err := parseTokens(strings.Join(all, "\n")); err != nil || !slices.Equal(again, all) {
			t.Errorf("%q is %q, again %q, %v", text, all, again, err)
		}
	})
}

package supportbundle

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
)

// redacted stands in the place of a secret.
const redacted = "(left out)"

// shortest is how long a line of a file of secrets is at least to be looked for.
const shortest = 6

var (
	// A key may stand in a line of a log or in JSON, where its line ends are escaped; and
	// its end may be missing.
	privateKey  = regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:(?:\r?\n|\\[nrt])+[A-Za-z0-9+/=]+)*(?:(?:\r?\n|\\[nrt])+-----END [A-Z0-9 ]*PRIVATE KEY-----)?`)
	urlUserinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/\s"'@]+@`)
	bearer      = regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{6,}`)
	// JSON web tokens, however they are named.
	webToken = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]*`)
	// Tokens of people (internal/netmaster/access/token) and to join (internal/security/jointoken).
	ownToken = regexp.MustCompile(`\bcontiv-(?:join-[A-Za-z0-9_-]{8,}|[A-Z2-7]{10}-[A-Z2-7]+)`)
	// A word, and what follows it: as JSON, as a field of a log, a flag, or a header.
	secretField = regexp.MustCompile(`(?i)((?:\\?["'])?[a-z0-9_.-]*(?:token|password|passwd|passphrase|pwd|secret|credential|private[_-]?key|api[_-]?key|client[_-]?key(?:-data)?|authorization|cookie)[a-z0-9_.-]*(?:\\?["'])?\s*[=:]\s*)` +
		`(\\"(?:[^"\\]|\\[^"])*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s,;}\])"']+)`)
)

// allowed are names that the words are a part of, and whose values are no secrets.
var allowed = regexp.MustCompile(`(?i)(_total|_required|_seconds|_file|-file|_bytes|_info)(?:\\?["'])?\s*[=:]\s*$`)

// Redactor takes secrets out of text.
type Redactor struct{ known [][]byte }

// NewRedactor knows the lines of files as secrets, as they are now, beside what every
// Redactor finds by its looks. A file that cannot be read has no secret that this process
// knows.
func NewRedactor(files ...string) *Redactor {
	r := &Redactor{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if f == "" || err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); len(line) >= shortest {
				r.known = append(r.known, []byte(line))
			}
		}
	}
	slices.SortFunc(r.known, func(a, b []byte) int { return len(b) - len(a) }) // one may be a part of another
	return r
}

// Redact returns text without secrets.
func (r *Redactor) Redact(text []byte) []byte {
	for _, s := range r.known {
		text = bytes.ReplaceAll(text, s, []byte(redacted))
	}
	text = privateKey.ReplaceAll(text, []byte(redacted))
	text = urlUserinfo.ReplaceAll(text, []byte("${1}"+redacted+"@"))
	text = webToken.ReplaceAll(text, []byte(redacted))
	text = ownToken.ReplaceAll(text, []byte(redacted))
	text = bearer.ReplaceAll(text, []byte("${1}${2}"+redacted))
	return secretField.ReplaceAllFunc(text, func(m []byte) []byte {
		parts := secretField.FindSubmatch(m)
		name, value := parts[1], parts[2]
		if allowed.Match(name) || isPlain(value) {
			return m
		}
		quote := ""
		for _, q := range []string{`\"`, `"`, `'`} {
			if bytes.HasPrefix(value, []byte(q)) {
				quote = q
				break
			}
		}
		return slices.Concat(name, []byte(quote+redacted+quote))
	})
}

// isPlain reports whether a value says nothing: empty, a truth value, or null.
func isPlain(value []byte) bool {
	switch strings.Trim(string(value), `\"'`) {
	case "", "true", "false", "null", "none", redacted, "(left":
		return true
	}
	return false
}

package transport

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// MinTokenLength is how many characters a token has at least.
const MinTokenLength = 16

// TokenFile has the tokens of a file. It is safe for concurrent use.
type TokenFile struct {
	path string
	now  func() time.Time

	mu        sync.Mutex
	checkedAt time.Time
	tokens    []string
	failed    error
}

// OpenTokens reads a file of tokens; an empty path is no file, and nil.
func OpenTokens(path string) (*TokenFile, error) {
	if path == "" {
		return nil, nil
	}
	f := &TokenFile{path: path, now: time.Now}
	f.refresh()
	return f, f.failed
}

// Show returns the token to show to others.
func (f *TokenFile) Show() string { return f.current()[0] }

// Source returns Show, or nil where there is no file.
func (f *TokenFile) Source() func() string {
	if f == nil {
		return nil
	}
	return f.Show
}

// Accepts reports whether what was shown is one of the tokens.
func (f *TokenFile) Accepts(shown string) bool {
	got := sha256.Sum256([]byte(shown)) // so that lengths tell nothing either
	found := 0
	for _, t := range f.current() {
		want := sha256.Sum256([]byte(t))
		found |= subtle.ConstantTimeCompare(got[:], want[:])
	}
	return found == 1
}

// Err is why the file, as it is now, is not followed; nil = it is, or there is none.
func (f *TokenFile) Err() error {
	if f == nil {
		return nil
	}
	f.current()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

func (f *TokenFile) current() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now().Sub(f.checkedAt) >= cacheTime {
		f.refresh()
	}
	return f.tokens
}

// refresh reads the file; what cannot be read leaves what there is.
func (f *TokenFile) refresh() {
	f.checkedAt = f.now()
	text, err := os.ReadFile(f.path)
	var tokens []string
	if err == nil {
		tokens, err = parseTokens(string(text))
	}
	if err != nil {
		f.failed = fmt.Errorf("tokens of %s: %w", f.path, err)
		return
	}
	f.tokens, f.failed = tokens, nil
}

// parseTokens reads a token a line; empty lines are none.
func parseTokens(text string) ([]string, error) {
	var all []string
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(line) < MinTokenLength || strings.ContainsFunc(line, func(r rune) bool { return r <= ' ' || r > '~' }) {
			return nil, fmt.Errorf("line %d must be one token of at least %d letters, digits and signs without spaces, such as the output of 'openssl rand -hex 32'", i+1, MinTokenLength)
		}
		all = append(all, line)
	}
	if len(all) == 0 {
		return nil, errors.New("it is empty: write a token into it, such as the output of 'openssl rand -hex 32'")
	}
	return all, nil
}

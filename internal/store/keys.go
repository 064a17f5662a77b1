package store

import "strings"

// Root is the prefix of every key of this system.
const Root = "/contiv.io/"

// Keys of the store itself. A mirror delivers none of them but StoreIdentityKey.
const (
	// CommitKey is put blindly by every Update: its mod revision is the revision
	// of the last commit. It sorts between state/alloc/ and state/global/, so that
	// one watch range covers it together with what agents mirror.
	CommitKey = Root + "state/commit"
	// StoreIdentityKey holds the store's Incarnation (tables.Incarnations). Every list of a mirror reads
	// it too.
	StoreIdentityKey = Root + "state/global/config/store"
)

// What agents of a cluster without TLS read of its store is the one range [AgentsBegin,
// AgentsEnd): observed status, the registry and the state.
const (
	AgentsBegin = Root + "oper/"
	AgentsEnd   = Root + "state0" // after all of state/
)

// PrefixEnd returns the first key after all keys with the prefix, in byte
// order; "" when there is none.
func PrefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return ""
}

// Segment escapes a name so that it is one segment of a key whatever it
// contains: "/" and "%" and control bytes become %XX, and the empty name "%".
// Different names give different segments.
func Segment(name string) string {
	if name == "" {
		return "%"
	}
	const hex = "0123456789ABCDEF"
	plain := true
	for i := range len(name) {
		if escapes(name[i]) {
			plain = false
			break
		}
	}
	if plain {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		if !escapes(c) {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hex[c>>4])
		b.WriteByte(hex[c&15])
	}
	return b.String()
}

func escapes(c byte) bool { return c == '/' || c == '%' || c < 0x21 || c == 0x7f }

// ParseSegment undoes Segment. It reports false for what Segment never makes.
func ParseSegment(seg string) (string, bool) {
	if seg == "%" {
		return "", true
	}
	if seg == "" {
		return "", false
	}
	b := make([]byte, 0, len(seg))
	for i := 0; i < len(seg); i++ {
		c := seg[i]
		if c != '%' {
			if escapes(c) {
				return "", false
			}
			b = append(b, c)
			continue
		}
		if i+2 >= len(seg) {
			return "", false
		}
		hi, ok1 := unhex(seg[i+1])
		lo, ok2 := unhex(seg[i+2])
		if !ok1 || !ok2 || !escapes(hi<<4|lo) {
			return "", false
		}
		b = append(b, hi<<4|lo)
		i += 2
	}
	return string(b), true
}

func unhex(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// AccessTokens is the prefix of the tokens that let clients in to the API. Agents follow
// none of it.
const AccessTokens = Root + "access/tokens/"
